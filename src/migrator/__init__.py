"""MIGRator: plans, second by second, which MIG instance serves or trains which tenant."""

__version__ = "0.1.0"
