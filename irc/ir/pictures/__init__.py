"""Graphs as pictures.

picture     a graph as boxes and lines, which placement puts in layers
svg         a picture as an SVG file; notebook: with a table, as notebooks show a graph
"""
