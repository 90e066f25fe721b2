"""Time that tenants have no instance at all: python benchmarks/without_instance.py [--seeds N]

Random decisions on three boards, followed by the executor in the virtual time of its tests, with
and without an order of steps that keeps one ready instance per tenant (execute/transition.py).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.executor_plans import random_slots
from support.executor_world import World

from migrator.control import keep_last_instance
from migrator.control.executor import Executor
from migrator.control.keep_last_instance import Order
from migrator.core.catalogue import board
from migrator.core.instance import Kind

BOARDS = ("A100-40GB", "A30-24GB", "H200-141GB")
BEGUN_S, RUN_S = 5.0, 130.0
"""Until everybody was served once; until every decision has come to rest."""


class Watched(World):
    """A world that counts seconds in which a tenant is to be served and nothing serves it."""

    without_s = 0.0

    def _pass(self, at_s: float) -> None:
        tasks = [each for each in self.wanted().values() if each is not None]
        for tenant in {each.tenant for each in tasks if each.kind is Kind.INFERENCE}:
            bodies = [each for each in self.bodies.values() if each.tenant == tenant]
            if self.now_s > BEGUN_S and not any(
                each.state in ("ready", "draining") for each in bodies
            ):
                self.without_s += at_s - self.now_s
        super()._pass(at_s)


def followed(seeds: Iterable[int]) -> tuple[float, float]:
    """Seconds without any instance, and seconds that instances were not yet as planned."""
    without_s = late_s = 0.0
    for seed in seeds:
        for name in BOARDS:
            executor = Executor(board(name), 4.0, {"a": 1.5, "b": 3.0})
            world = Watched(board(name), executor, seed)
            world.follow(random_slots(random.Random(seed), board(name)), window=0)
            world.run(RUN_S)
            assert world.missing() == []
            without_s, late_s = without_s + world.without_s, late_s + world.late_unit_s
    return without_s, late_s


def no_order(*_: Any) -> Order:
    """No instance is kept until it is replaced: what is in the way leaves at once."""
    return Order((), ())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=300)
    seeds = range(parser.parse_args().seeds)
    with patch.object(keep_last_instance, "find_order", no_order):
        before = followed(seeds)
    after = followed(seeds)
    for words, old, new in zip(("no instance", "not as planned"), before, after, strict=True):
        print(f"{words:15} {old:8.0f} s -> {new:8.0f} s  {new / old - 1:+.1%}")


if __name__ == "__main__":
    main()
