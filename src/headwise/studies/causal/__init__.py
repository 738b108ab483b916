"""Does the model need this head? What the loss, by class of token, and the next-token distribution do without it."""
