"""What every part of Headwise shares: errors, the names of dimensions and heads, provenance, HTML fragments, cancellation.

Imports nothing of ours and no heavy library, so that any part may import it.
"""
