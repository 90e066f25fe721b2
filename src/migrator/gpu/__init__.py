"""GPU partitioning: drivers (MIG, MPS, emulated), a crash-safe journal, and layouts."""
