"""The scripts behind docs/results: `python -m benchmarks.NAME` in the root of the repository."""
