"""Kernel selection, by family: which nodes a kernel computes, as a problem, and the cheapest kernel for it."""
