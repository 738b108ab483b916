"""Study `answers`: what does the model say when it is asked, and is it right?

`measure` asks (`studies.decoding` makes many answers at once) and judges, `endings` says where an answer is
over. The maps of `spectral`, `probing` and `samples` are made from these answers.
"""
