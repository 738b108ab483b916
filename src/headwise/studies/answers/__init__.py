"""Study `answers`: what does the model say when it is asked, and is it right?

`study` asks and judges, `decoding` makes many answers at once (or reads given ones), `endings` says where an answer is
over. The maps of `spectral`, `probing` and `samples` are made from these answers.
"""
