"""Scenarios: their files, the packaged models, drifts and the paper's workloads."""
