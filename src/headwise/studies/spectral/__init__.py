"""Studies `spectral` and `detection`: does a head's attention differ when the model answers wrongly, and can that be used?

`study` reads the attention and tests every head, `detection` fits detectors on the same readings, `scoring` applies the
detector that an atlas holds to new answers.
"""
