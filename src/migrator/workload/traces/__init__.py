"""Arrivals: a seeded generator, and loaders for public traces in their own formats."""
