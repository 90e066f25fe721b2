"""Placement of tenants on GPUs, and simulated runs of a whole cluster."""
