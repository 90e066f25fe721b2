"""What was held, from slots to slabs and shares, on windows made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.outcomes import retraining, serving, window

from migrator.core.catalogue import board
from migrator.core.instance import Instance, Kind, Task
from migrator.core.outcome import WindowOutcome
from migrator.core.share import Holding, Share
from migrator.report.page import Areas, Paint, Slices
from migrator.report.run_allocation import Slot, allocation_charts, stretches_of

A100 = board("A100-40GB")
TENANTS = ("bert", "vit")


def holding(*slots: tuple[Holding, ...]) -> WindowOutcome:
    return replace(window(), slots=slots)


def slices(
    given: WindowOutcome, before: Slot | None = None, overhead_s: dict[str, float] | None = None
) -> Slices:
    (chart,) = allocation_charts(given, before, A100, 0.5, TENANTS, overhead_s or {})
    assert isinstance(chart, Slices)
    return chart


def test_slots_of_the_same_instance_are_one_stretch() -> None:
    a, b = serving("bert", 0, 3), serving("vit", 4, 1)
    found = stretches_of(((a, b), (a, b), (b,), (a, b)), None)
    assert [(s.instance, s.first, s.end, s.is_new) for s in found] == [
        (a, 0, 2, False),
        (b, 0, 4, False),
        (a, 3, 4, True),
    ]


def test_what_the_window_before_held_is_not_new() -> None:
    a, b = serving("bert", 0, 3), serving("vit", 4, 1)
    found = stretches_of(((a, b),), (a,))
    assert [s.is_new for s in found] == [False, True]
    assert [s.is_new for s in stretches_of(((a, b),), ())] == [True, True]


def test_an_instance_that_stays_with_its_tenant_is_not_new_in_its_other_task() -> None:
    found = stretches_of(((retraining("bert", 2, 2),), (serving("bert", 2, 2),)), None)
    assert [s.is_new for s in found] == [False, False]
    found = stretches_of(((retraining("bert", 2, 2),), (serving("vit", 2, 2),)), None)
    assert [s.is_new for s in found] == [False, True]


def test_an_instance_nobody_uses_is_never_new() -> None:
    found = stretches_of(((), (Instance(0, 1),)), None)
    assert [s.is_new for s in found] == [False]


def test_slabs_lie_on_memory_slices_in_seconds() -> None:
    chart = slices(holding((serving("bert", 0, 3), retraining("vit", 4, 2), Instance(6, 1))))
    assert chart.keys == (
        ("bert", Paint(0)),
        ("vit, retraining", Paint(1, hatched=True)),
        ("unused", Paint(None, light=True)),
    )
    found = [(s.key, s.label, s.start, s.width, s.from_s, s.until_s) for s in chart.slabs]
    assert found == [
        (0, "3g", 0, 4, 0.0, 0.5),
        (1, "2g", 4, 2, 0.0, 0.5),
        (2, "1g", 6, 1, 0.0, 0.5),
    ]
    assert (chart.slices, chart.until_s, chart.starts) == (8, 0.5, ())


def test_a_new_serving_instance_is_marked_and_retraining_is_not() -> None:
    later = (serving("bert", 0, 3), retraining("vit", 4, 2))
    assert slices(holding((), later)).starts == ((0.5, 2.0),)


@pytest.mark.parametrize(
    ("overhead_s", "spans"),
    [(0.2, [("cold", 0.5, 0.7), ("warm", 0.7, 1.5)]), (9.0, [("cold", 0.5, 1.5)])],
)
def test_with_its_overhead_a_cold_start_is_as_long_as_it_is(
    overhead_s: float, spans: list[tuple[str, float, float]]
) -> None:
    later = (serving("bert", 0, 3),)
    chart = slices(holding((), later, later), overhead_s={"bert": overhead_s})
    names = {"bert": "warm", "bert, cold start": "cold"}
    found = [(names[chart.keys[s.key][0]], s.from_s, s.until_s) for s in chart.slabs]
    assert [name for name, *_ in found] == [name for name, *_ in spans]
    assert [each[1:] for each in found] == [pytest.approx(each[1:]) for each in spans]
    assert chart.starts == ()


def test_shares_add_up_by_task_and_count_for_the_time_they_have() -> None:
    task = Task("bert", Kind.INFERENCE)
    slot = (
        Share(0, 30.0, task),
        Share(1, 30.0, task),
        Share(0, 40.0, Task("vit", Kind.RETRAINING), duty=0.5),
    )
    (chart,) = allocation_charts(holding(slot, slot[:1]), None, A100, 0.5, TENANTS, {})
    assert isinstance(chart, Areas)
    assert [(each.name, each.values) for each in chart.series] == [
        ("bert", (60.0, 30.0)),
        ("vit, retraining", (20.0, 0.0)),
    ]
    assert (chart.at, chart.until) == ((0.0, 0.5), 1.0)


def test_a_window_in_which_nothing_was_held_has_no_chart() -> None:
    assert allocation_charts(holding((), ()), None, A100, 0.5, TENANTS, {}) == ()
