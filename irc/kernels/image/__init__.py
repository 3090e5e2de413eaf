"""Decoders of image files in C, one file for each format: Pillow's results, without a library."""
