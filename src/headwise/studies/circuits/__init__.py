"""Study `circuits`: which heads and edges does a task need, and how few, dense against sparse?

`options`, `bench` (a task on a model), `graph` (who sends, who receives), `receivers` (a pass in which every head has an
input of its own), `attribution` (effects by gradient), `heads` and `edges` (exact patching), `curve` (growing circuits),
`reading` (one task), `evidence` (shares, sizes, ratios), `study` (the recipe).
"""
