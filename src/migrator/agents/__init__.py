"""Many GPUs, live: an agent per GPU, a head that knows who lives where, gateways in front."""
