"""Forecasters: history in, arrivals ahead out. One file each, found by name."""
