"""The C compiler and the processor that it compiles for."""
