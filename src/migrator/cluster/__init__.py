"""Many GPUs: who lives where, planned and simulated; each GPU then runs as one alone would.

What makes it so on real ones is in `agents`.
"""
