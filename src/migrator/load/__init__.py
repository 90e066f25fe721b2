"""Load generator: sends a scenario's requests to a live system and counts their outcomes."""
