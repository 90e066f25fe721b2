"""Load generator: sends a scenario's requests to a live system at their due times and counts
outcomes."""
