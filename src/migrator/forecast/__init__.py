"""Forecasters: history in, arrivals ahead out, found by name."""
