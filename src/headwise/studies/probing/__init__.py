"""Study `probing`: at which layer and token does the model know that it errs?

`positions` finds the exact answer and the tokens around it, `reading` reads activations there, `finalize` fits a probe per
cell and compares the best with baselines, `transfer` tests probes on other topics; `measure` puts them in order.
"""
