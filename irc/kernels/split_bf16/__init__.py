"""f32 products from bf16 terms, for kernels on AMX and AVX512-BF16."""
