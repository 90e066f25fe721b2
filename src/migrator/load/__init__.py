"""Clients of a live system: a scenario's requests sent as they are due, and what came of them."""
