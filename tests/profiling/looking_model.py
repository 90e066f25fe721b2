"""A model that writes down what its process finds: which instance is its own, which there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from support.fake_nvml.machine import FakeNvml
from support.tiny_model import Tiny

MACHINE = "MIGRATOR_TEST_FAKE_MACHINE"
SEEN = "MIGRATOR_TEST_SEEN"


class Looking(Tiny):
    """Looks around when it is built."""

    @classmethod
    def build(cls, classes: int, seed: int) -> Self:
        there = FakeNvml(Path(os.environ[MACHINE])).instances()
        mine = os.environ["CUDA_VISIBLE_DEVICES"]
        places = [
            f"{instance.place}{' mine' if instance.uuid == mine else ''}" for instance in there
        ]
        with Path(os.environ[SEEN]).open("a") as file:
            print(", ".join(places), file=file)
        return super().build(classes, seed)
