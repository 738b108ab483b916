"""Studies `relations` and `salience`: what does each head compute, and which tokens does it amplify, by its weights?"""
