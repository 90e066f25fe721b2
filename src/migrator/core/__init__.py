"""Immutable data types that all other packages use. Imports no other package."""
