"""Profiling: models and a GPU in, measured profiles out; needs nothing but torch and numpy."""
