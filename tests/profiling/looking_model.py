"""A model that writes down what its process finds: which instance is its own, which there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from support.tiny_model import Tiny

from migrator.gpu.drivers.mig import FAKE_NVML
from migrator.gpu.fake_nvml.machine import FakeNvml

SEEN = "MIGRATOR_TEST_SEEN"


class Looking(Tiny):
    """Looks around when it is built."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        there = FakeNvml(Path(os.environ[FAKE_NVML])).instances()
        mine = os.environ["CUDA_VISIBLE_DEVICES"]
        words = [f"{each.place}{' mine' if each.uuid == mine else ''}" for each in there]
        with Path(os.environ[SEEN]).open("a") as file:
            print(", ".join(words), file=file)
        return super().build(classes, seed)
