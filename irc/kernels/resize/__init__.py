"""Kernels of interpolations along the last two axes."""
