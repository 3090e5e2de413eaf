"""Parts of every kernel: its base, epilogue, register tile, instruction set and text."""
