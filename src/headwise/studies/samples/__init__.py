"""Study `samples`: what does the model say when it is asked K times, and which answer should be given?

`study` draws and reads the samples, `error_types` sorts the questions by how the model errs on them, `selection` lets a
probe choose among the samples.
"""
