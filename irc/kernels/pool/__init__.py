"""Pools over planes."""
