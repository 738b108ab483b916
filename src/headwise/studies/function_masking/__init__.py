"""Study `function_masking`: does the model need the heads that carry a function?

`sets` says which heads are changed, `plan` what is asked with which change, `asking` asks it in batches, `hierarchy` asks
whole questions; `evidence` (with `chains`, `gaps`) makes the Dataset; `study` puts them in order. Made from the maps of
the study `functions`.
"""
