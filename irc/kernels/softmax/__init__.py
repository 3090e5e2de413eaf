"""Softmax and its logarithm along an axis."""
