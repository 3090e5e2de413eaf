"""f32 products from bf16 terms: what the kernels on AMX and AVX512-BF16 share."""
