"""Study `functions`: which heads carry which cognitive function?

`choice` says which steps are asked; `reading` asks them and reads heads at the answers' `key_tokens`, with prompts read once
(`rounds`, `readied`); `rows` are the steps as arrays, `told` what a joint probe over all heads makes of them, `maps` the
Dataset, with `chance`, `elbow`, `second_opinion`, `confounds` and `directions`; `study` puts them in order.
"""
