"""Records of a run, simulated or live: the recorder, the rows in one SQLite file, their readers."""
