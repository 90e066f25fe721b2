"""Comparison of two profile files: the differences between values that both contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from migrator.core.errors import InputError
from migrator.core.profiles import Profile


@dataclass(frozen=True)
class Apart:
    """Differences of the two files in one quantity, relative to the mean of both values."""

    quantity: str
    values: int
    median: float
    largest: float
    where: str
    """Name of the value with the largest difference."""

    def words(self) -> str:
        """The comparison in one line."""
        return (
            f"{self.quantity:<15} {self.values:4d} values, apart by {self.median:6.2%} (median), "
            f"{self.largest:6.2%} (most: {self.where})"
        )


def compare(first: Iterable[Profile], second: Iterable[Profile]) -> list[Apart]:
    """The comparison of each quantity that both contain. InputError if they share no model."""
    others = {(each.model, each.board): each for each in second}
    found: dict[str, list[tuple[float, str]]] = {}
    for each in first:
        other = others.get((each.model, each.board))
        if other is not None:
            for quantity, where, one, two in _both(each, other):
                found.setdefault(quantity, []).append((_apart(one, two), where))
    if not found:
        raise InputError("--compare: the files have no model on the same board in common")
    return [
        Apart(quantity, len(parts), median(part for part, _ in parts), *max(parts))
        for quantity, parts in found.items()
    ]


def _both(one: Profile, two: Profile) -> Iterator[tuple[str, str, float, float]]:
    for batch in sorted(one.latency_ms.keys() & two.latency_ms.keys()):
        values = dict(two.latency_ms[batch].points)
        for sms, value in one.latency_ms[batch].points:
            if sms in values:
                where = f"{one.model} x{batch} on {sms:g} SMs"
                yield "latency_ms", where, value, values[sms]
    for name in ("training_ratio", "interference", "contention"):
        yield name, one.model, getattr(one, name), getattr(two, name)
    for name in ("create_s", "start_s", "load_s"):
        yield name, one.model, getattr(one.overhead, name), getattr(two.overhead, name)


def _apart(one: float, two: float) -> float:
    return abs(one - two) / ((one + two) / 2) if one + two else 0.0
