"""Records of a run: what happened, whether simulated or live, in one SQLite file."""
