"""Many GPUs: who lives where, planned and simulated; each GPU then runs as one alone would.

Agents that make it so, one per node, belong here too; they are not built yet.
"""
