"""C text for kernels of several families: vectors, their functions, and bf16 storage."""
