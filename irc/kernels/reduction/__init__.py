"""Kernels of reductions of rows."""
