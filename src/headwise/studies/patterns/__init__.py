"""What do the attention maps look like, of one model or of two (dense and sparse)?"""
