"""Study `sparsity`: what does a model lose when attention weights are dropped at inference, without training?

`options` (the rules and what they are tried on), `study` (the recipe, the passes and the conclusion).
"""
