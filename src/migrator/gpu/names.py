"""The drivers' names, for whoever must know them before a driver is loaded."""

from enum import StrEnum


class Driver(StrEnum):
    """What divides the GPU, by name."""

    MIG = "mig"
    MPS = "mps"
    EMULATED = "emulated"
