"""Policies: an observation in, what every task gets out. One file each, found by name."""
