"""Does the model still answer, and can its errors still be detected, without a head? See `measure` for the method."""
