"""Study `probing`: at which layer and token can a probe detect that the answer is wrong?

`positions` finds the exact answer and the tokens around it, `reading` reads activations there, `finalize` fits a probe per
cell and compares the best with baselines, `transfer` tests probes on other topics; `measure` puts them in order.
"""
