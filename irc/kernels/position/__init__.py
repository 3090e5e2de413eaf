"""Positions of largest and smallest elements along an axis."""
