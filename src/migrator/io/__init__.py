"""Input and output: strict files, atomic writes, locks, SQLite, child processes, HTTP calls."""
