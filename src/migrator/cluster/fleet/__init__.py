"""A live cluster: one agent per GPU, a head that places tenants, gateways in front."""
