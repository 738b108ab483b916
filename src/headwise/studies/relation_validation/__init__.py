"""Do heads do in texts what their weights say, and does the model need them for it?"""
