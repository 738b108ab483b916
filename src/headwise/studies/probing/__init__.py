"""Study `probing`: at which layer and token does the model know that it errs?

`spans` finds the exact answer, `positions` the tokens around it, `reading` the activations there (with `self_judgement`:
what the model says of its own answer); `maps` fits a probe a cell, `table` compares the best with baselines, `transfer`
takes probes to other topics, `leak` measures what finding the answer by its label gives away; `study` puts them in order.
"""
