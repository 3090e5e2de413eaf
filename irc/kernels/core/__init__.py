"""What every kernel is made of: its base, epilogue, register tile, instruction set and text."""
