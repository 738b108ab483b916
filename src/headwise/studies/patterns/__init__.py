"""Study `patterns`: what do the attention maps look like, of one model or of two side by side (dense against sparse)?

`options`, `prompts` (texts cut to equal length), `subjects` (the two models, and what is refused), `reading` (one batch,
both models), `maps` (numbers, tests and pictures from the readings), `study` (the recipe).
"""
