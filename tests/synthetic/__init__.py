"""Studies made up: what each study would write for a model, with known heads planted. Figures and words are tested on them."""
