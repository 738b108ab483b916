"""Studies `spectral` and `detection`: does a head's attention differ in wrong answers, and does that detect them?

`measure` reads the attention, `finalize` tests every head, `detection` fits detectors on the same readings.
"""
