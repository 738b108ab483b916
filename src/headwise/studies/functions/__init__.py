"""Study `functions`: which heads carry which cognitive function? See `spec` for the question and `measure` for the method."""
