"""A graph to a NumPy module."""
