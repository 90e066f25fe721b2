"""Policies: map an observation to a layout. One file each, found by name."""
