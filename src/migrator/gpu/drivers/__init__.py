"""GPU drivers: one protocol, implemented with MIG, with MPS and without a GPU."""
