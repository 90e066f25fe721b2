"""Plans as slabs: places, widths, cold starts and shares."""

from __future__ import annotations

import pytest
from support.scenarios import serves, trains

from migrator.core.catalogue import board
from migrator.core.problem import Holding, Instance, Kind, Share, Task
from migrator.records.runs import held_blocks
from migrator.report.page import Slices
from migrator.report.paint import Paint
from migrator.report.slices import planned_slices

A100 = board("A100-40GB")
TENANTS = ("bert", "vit")


def slices(
    *slots: tuple[Holding, ...],
    before: tuple[Holding, ...] | None = None,
    overhead_s: dict[str, float] | None = None,
) -> Slices:
    held = None if before is None else held_blocks([before], A100)
    blocks = held_blocks(slots, A100)
    return planned_slices("t", blocks, A100, len(slots), 0.5, TENANTS, overhead_s or {}, held)


def test_slabs_lie_on_memory_slices_in_seconds() -> None:
    chart = slices((serves("bert", 0, 3), trains("vit", 4, 2), Instance(6, 1)))
    assert chart.keys == (
        ("bert", Paint(0)),
        ("vit, retraining", Paint(1, hatched=True)),
        ("unused", Paint(None, light=True)),
    )
    drawn_slabs = [(s.name, s.size, s.start, s.width, s.from_s, s.until_s) for s in chart.slabs]
    assert drawn_slabs == [
        ("bert", "3g", 0, 4, 0.0, 0.5),
        ("vit, retraining", "2g", 4, 2, 0.0, 0.5),
        ("unused", "1g", 6, 1, 0.0, 0.5),
    ]
    assert (chart.slices, chart.until_s) == (8, 0.5)


@pytest.mark.parametrize(
    ("overhead_s", "spans"),
    [
        (0.2, [("bert, cold start", 0.5, 0.7), ("bert", 0.7, 1.5)]),
        (9.0, [("bert, cold start", 0.5, 1.5)]),
    ],
)
def test_with_its_overhead_a_cold_start_is_as_long_as_it_is(
    overhead_s: float, spans: list[tuple[str, float, float]]
) -> None:
    later = (serves("bert", 0, 3),)
    chart = slices((), later, later, overhead_s={"bert": overhead_s})
    assert [slab.name for slab in chart.slabs] == [span[0] for span in spans]
    slab_spans = [(slab.from_s, slab.until_s) for slab in chart.slabs]
    assert slab_spans == [pytest.approx(span[1:]) for span in spans]


def test_shares_are_stacked_and_count_for_the_time_they_have() -> None:
    task = Task("bert", Kind.INFERENCE)
    slot = (
        Share(0, 25.0, task),
        Share(1, 25.0, task),
        Share(0, 50.0, Task("vit", Kind.RETRAINING), duty=0.5),
    )
    chart = slices(slot, slot[:1])
    widths = {(slab.name, slab.size): slab.width for slab in chart.slabs}
    assert widths["bert", "25%"] == pytest.approx(2.0)
    assert widths["vit, retraining", "50% for 50% of the time"] == pytest.approx(2.0)
    assert sorted(slab.start for slab in chart.slabs) == pytest.approx([0.0, 2.0, 4.0])
