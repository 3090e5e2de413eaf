"""Products and convolutions of bytes, with sums in 32-bit integers."""
