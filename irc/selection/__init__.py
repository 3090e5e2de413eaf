"""Kernel selection, by family: the nodes that kernels compute, as problems, and the cheapest kernel for each."""
