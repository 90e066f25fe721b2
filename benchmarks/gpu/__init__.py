"""Scripts that measure on a GPU. They need what they import, and `migrator` on `PYTHONPATH`."""
