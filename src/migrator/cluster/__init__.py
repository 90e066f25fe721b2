"""Multi-GPU clusters: `placement` assigns tenants to GPUs, `fleet` runs the placement on Ray."""
