"""Changes of layout and storage for kernels: channels last, folded taps, results in place, bf16 storage."""
