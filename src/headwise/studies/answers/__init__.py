"""Study `answers`: what does the model answer, and is the answer correct?

`measure` asks the questions (`studies.decoding` generates in batches) and labels the answers; `endings` decides where an
answer ends. The studies `spectral`, `probing` and `samples` depend on these answers.
"""
