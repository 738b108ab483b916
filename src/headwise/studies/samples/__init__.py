"""Study `samples`: what does the model answer when it is asked K times, and which answer should be given?

`measure` draws and reads the samples, `error_types` classifies the questions by how the model errs on them, `selection` lets
a probe choose among the samples, `finalize` joins them.
"""
