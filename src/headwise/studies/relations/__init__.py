"""Studies `relations`, `salience` and `relation_validation`: what does each head compute, told from its weights, and does
it do so in texts?

From weights: `reading` looks pairs of words up in one layer's heads, `maps` makes the Datasets, `study` puts them in
order. In texts: `prompts` writes them, `outputs` reads heads in them, `removal` switches heads off, `evidence` makes the
Dataset, `validation` puts them in order.
"""
