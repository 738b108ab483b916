"""The study `streaming`: how early in an answer can one tell that it is wrong, and from which score?"""
