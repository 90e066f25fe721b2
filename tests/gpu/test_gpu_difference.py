"""How a board differs from a layout."""

from __future__ import annotations

import pytest

from migrator.core.placement import Place
from migrator.gpu.drivers.base import GpuInstance
from migrator.gpu.partition.layout import Layout, difference


def there(*places: Place, half_made: tuple[Place, ...] = ()) -> list[GpuInstance]:
    return [
        GpuInstance(place, number, None if place in half_made else f"MIG-{number}")
        for number, place in enumerate(places)
    ]


FOUR, THREE = Place(0, "4g.20gb"), Place(4, "3g.20gb")
SMALL = tuple(Place(start, "1g.5gb") for start in (4, 5, 6))


@pytest.mark.parametrize(
    ("present", "wanted", "words"),
    [
        (there(), Layout(), []),
        (there(FOUR, THREE), Layout((THREE, FOUR)), []),
        (there(FOUR, *SMALL), Layout((FOUR,), {"1g.5gb": 3}), []),
        (there(*SMALL), Layout((SMALL[1],), {"1g.5gb": 2}), []),
        (there(FOUR), Layout((FOUR, THREE)), ["missing: 3g.20gb at 4"]),
        (there(FOUR), Layout((), {}), ["not in the layout: 4g.20gb at 0"]),
        (there(*SMALL), Layout((), {"1g.5gb": 2}), ["not in the layout: 1g.5gb at 6"]),
        (there(*SMALL), Layout((), {"1g.5gb": 5}), ["missing: 2 of 1g.5gb, anywhere"]),
        (there(), Layout((), {"1g.5gb": 0}), []),
        (
            there(FOUR, half_made=(FOUR,)),
            Layout((FOUR,)),
            ["without compute instance: 4g.20gb at 0"],
        ),
        (there(FOUR, half_made=(FOUR,)), Layout(), ["not in the layout: 4g.20gb at 0"]),
    ],
)
def test_differences(present: list[GpuInstance], wanted: Layout, words: list[str]) -> None:
    found = difference(present, wanted)
    assert found.words() == words
    assert bool(found) == bool(words)
