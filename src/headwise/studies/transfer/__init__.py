"""The study `transfer`: does a detector of wrong answers carry over to another question set?"""
