"""Study `circuits`: which heads and edges does a task need, and how few, dense against sparse?"""
