"""Many GPUs: `placement` decides which tenant runs on which GPU, `fleet` carries it out on Ray."""
