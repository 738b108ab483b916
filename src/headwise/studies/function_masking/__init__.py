"""Study `function_masking`: does the model need the heads that carry a function? See `measure` for the method."""
