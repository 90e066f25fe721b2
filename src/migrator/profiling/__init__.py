"""Profiling of models on a GPU: writes measured profiles. Requires only torch and numpy."""
