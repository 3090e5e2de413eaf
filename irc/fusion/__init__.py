"""Fusion: elements of values as expressions, how they are read, and which nodes are computed together."""
