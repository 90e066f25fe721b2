"""Two profile files compared, quantity by quantity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from migrator.core.errors import InputError
from migrator.core.profiles import Profile


@dataclass(frozen=True)
class QuantityDifference:
    """Differences of the two files in one quantity, relative to the mean of both values."""

    quantity: str
    values: int
    median: float
    largest: float
    where: str
    """Name of the value with the largest difference."""

    def line(self) -> str:
        """The comparison in one line."""
        return (
            f"{self.quantity:<15} {self.values:4d} values, apart by {self.median:6.2%} (median), "
            f"{self.largest:6.2%} (most: {self.where})"
        )


def compare(first: Iterable[Profile], second: Iterable[Profile]) -> list[QuantityDifference]:
    """The comparison of each quantity that both contain. InputError if they share no model."""
    others = {(profile.model, profile.board): profile for profile in second}
    differences: dict[str, list[tuple[float, str]]] = {}
    for profile in first:
        other = others.get((profile.model, profile.board))
        if other is not None:
            for quantity, where, first_value, second_value in _both(profile, other):
                differences.setdefault(quantity, []).append(
                    (_apart(first_value, second_value), where)
                )
    if not differences:
        raise InputError("--compare: the files have no model on the same board in common")
    return [
        QuantityDifference(quantity, len(parts), median(part for part, _ in parts), *max(parts))
        for quantity, parts in differences.items()
    ]


def _both(first: Profile, second: Profile) -> Iterator[tuple[str, str, float, float]]:
    for batch in sorted(first.latency_ms.keys() & second.latency_ms.keys()):
        values = dict(second.latency_ms[batch].points)
        for sms, value in first.latency_ms[batch].points:
            if sms in values:
                where = f"{first.model} x{batch} on {sms:g} SMs"
                yield "latency_ms", where, value, values[sms]
    for name in ("training_ratio", "interference", "contention"):
        yield name, first.model, getattr(first, name), getattr(second, name)
    for name in ("create_s", "start_s", "load_s"):
        yield name, first.model, getattr(first.overhead, name), getattr(second.overhead, name)


def _apart(first: float, second: float) -> float:
    return abs(first - second) / ((first + second) / 2) if first + second else 0.0
