"""A fake NVML that replaces functions of `pynvml`, with its state on disk, for tests and trials."""
