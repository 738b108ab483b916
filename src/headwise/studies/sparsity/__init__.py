"""What does a model lose when attention weights are dropped at inference, without training?"""
