"""Workloads: scenario files, traces of arrivals, packaged data sets and the paper's workloads."""
