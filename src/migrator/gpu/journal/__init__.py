"""Journal of all creates and destroys, written before the GPU is touched, and crash recovery."""
