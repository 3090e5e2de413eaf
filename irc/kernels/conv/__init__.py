"""Convolutions over planes."""
