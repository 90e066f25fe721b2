"""How a board differs from a layout: what `migrator gpu assert` tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.gpu.driver import GpuInstance, Place
from migrator.gpu.layout import Layout


@dataclass(frozen=True)
class Difference:
    """What is wanted and not there, there and not wanted, and there but unusable."""

    missing: tuple[Place, ...]
    fewer: Mapping[str, int]
    """MIG profile -> how many more are wanted, wherever they fit."""
    unexpected: tuple[GpuInstance, ...]
    half_made: tuple[GpuInstance, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.fewer or self.unexpected or self.half_made)

    def words(self) -> list[str]:
        """One line per difference."""
        return [
            *(f"missing: {each}" for each in self.missing),
            *(f"missing: {count} of {profile}, anywhere" for profile, count in self.fewer.items()),
            *(f"not in the layout: {each.place}" for each in self.unexpected),
            *(f"without compute instance: {each.place}" for each in self.half_made),
        ]


def difference(present: Sequence[GpuInstance], wanted: Layout) -> Difference:
    """What keeps the board from being as the layout says."""
    places = {each.place for each in present}
    left = Counter({profile: count for profile, count in wanted.counts.items() if count})
    unexpected = []
    for each in sorted(present, key=lambda one: one.place):
        if each.place in wanted.places:
            continue
        if left[each.place.profile] > 0:
            left[each.place.profile] -= 1
        else:
            unexpected.append(each)
    return Difference(
        missing=tuple(sorted(each for each in wanted.places if each not in places)),
        fewer={profile: count for profile, count in left.items() if count},
        unexpected=tuple(unexpected),
        half_made=tuple(each for each in present if each.uuid is None and each not in unexpected),
    )
