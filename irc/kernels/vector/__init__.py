"""C text that kernels of several families share: vectors, their functions, and bf16 storage."""
