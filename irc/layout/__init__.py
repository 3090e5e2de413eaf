"""Changes of layout and storage that kernels ask for: channels last, taps folded, results in place, bf16 storage."""
