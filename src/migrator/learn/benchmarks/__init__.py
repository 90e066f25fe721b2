"""Class-incremental benchmarks: a module offers its own in `BENCHMARKS`."""
