"""A plan's picture: what it shows, checked on a plan made by hand, and the files it becomes."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import make
from support.executor_plans import random_slots
from support.scenarios import serves, trains

from migrator.core.catalogue import board
from migrator.core.problem import (
    Allocation,
    Charge,
    Holding,
    Initial,
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    Share,
    Task,
    Tenant,
)
from migrator.planning.check import goodput_of
from migrator.records.runs import held_blocks
from migrator.report.page import Lines, Slab, Slices, Use, legend_of
from migrator.report.paint import Paint, shades
from migrator.report.plan_figure import (
    TenantSeries,
    draw_plan,
    plan_charts,
    plan_slices,
    tenant_series,
)
from migrator.report.slices import planned_slices


def held(start: int, gpcs: int, task: str | None) -> Instance:
    return Instance(start, gpcs, Task.parse(task) if task else None)


def tenant(name: str, *scenarios: Sequence[float], overhead_s: float = 0.5) -> Tenant:
    return replace(
        make.tenant(name, scenarios[0], overhead_s=overhead_s),
        received=tuple(map(tuple, scenarios)),
        capability={1: 10.0, 2: 18.0, 3: 25.0, 4: 30.0},
        configurations=make.only(0.8, {2: 3}),
    )


BEFORE = Allocation((held(0, 3, "bert/inference"), held(4, 1, "vit/inference")))
DURING = Allocation(
    (
        held(0, 1, "bert/inference"),
        held(2, 2, "bert/retraining"),
        held(4, 1, "vit/inference"),
        held(5, 1, None),
    )
)
PLAN = Plan(
    goodput=57.5,
    upper_bound=57.5,
    solver="exact",
    solve_s=0.25,
    retrainings=(Retraining("bert", 2, 5, 2),),
    slots=(BEFORE, BEFORE, DURING, DURING, DURING, BEFORE),
)


def problem(
    charge: Charge = Charge.PAPER,
    *,
    overhead_s: float = 0.5,
    slot_s: float = 1.0,
    initial: Initial | None = None,
) -> Problem:
    tenants = (tenant("bert", [20.0] * 6, overhead_s=overhead_s), tenant("vit", [5.0] * 6))
    return Problem(board("A100-40GB"), slot_s, 6, charge, tenants, initial)


def series(chosen: Problem, plan: Plan = PLAN, name: str = "bert") -> TenantSeries:
    return tenant_series(chosen, plan, plan_slices(chosen, plan), chosen.tenant(name))


def serving(*slots: Sequence[tuple[int, int]]) -> Plan:
    """A plan in which bert serves on the given (start, GPCs) in each slot."""
    allocations = [
        Allocation(tuple(held(start, gpcs, "bert/inference") for start, gpcs in slot))
        for slot in slots
    ]
    return replace(PLAN, retrainings=(), slots=tuple(allocations))


def alone(charge: Charge, slots: int, overhead_s: float = 0.5) -> Problem:
    bert = tenant("bert", [1000.0] * slots, overhead_s=overhead_s)
    return Problem(board("A100-40GB"), 1.0, slots, charge, (bert,))


# Slices


def test_slots_of_the_same_instance_and_task_are_one_slab() -> None:
    drawn_slabs = [(s.start, s.width, s.note, s.name, s.from_s, s.until_s) for s in slabs()]
    assert drawn_slabs == [
        (0, 4, "3g.20gb on slices 0-3", "bert", 0, 2),
        (4, 1, "1g.5gb on slice 4", "vit", 0, 6),
        (0, 1, "1g.5gb on slice 0", "bert", 2, 5),
        (2, 2, "2g.10gb on slices 2-3", "bert, retraining", 2, 5),
        (5, 1, "1g.5gb on slice 5", "unused", 2, 5),
        (0, 4, "3g.20gb on slices 0-3", "bert", 5, 6),
    ]


def slabs(chosen: Problem | None = None, plan: Plan = PLAN) -> tuple[Slab, ...]:
    return plan_slices(chosen or problem(), plan).slabs


def cold(chosen: Problem) -> list[tuple[float, float]]:
    return [(s.from_s, s.until_s) for s in slabs(chosen) if s.use is Use.COLD]


def test_new_serving_instances_are_cold_under_survivors_but_no_longer_than_they_live() -> None:
    assert cold(problem(Charge.SURVIVORS, overhead_s=1.5)) == [(2.0, 3.5), (5.0, 6.0)]


def test_nothing_is_cold_under_paper() -> None:
    assert not cold(problem(initial=Initial()))


# Slices of any run


def slices(
    *slots: tuple[Holding, ...],
    before: tuple[Holding, ...] | None = None,
    overhead_s: dict[str, float] | None = None,
) -> Slices:
    held = None if before is None else held_blocks([before], board("A100-40GB"))
    blocks = held_blocks(slots, board("A100-40GB"))
    return planned_slices(
        "t", blocks, board("A100-40GB"), len(slots), 0.5, ("bert", "vit"), overhead_s or {}, held
    )


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


# Series


def test_paper_charges_the_slot_in_which_the_multiset_changes() -> None:
    bert = series(problem())
    np.testing.assert_allclose(bert.capability, [25, 25, 5, 10, 10, 12.5])
    np.testing.assert_allclose(bert.goodput, [10, 10, 2.5, 5, 5, 10])
    assert bert.completed == 5


@pytest.mark.parametrize("charge", list(Charge))
def test_the_series_add_up_to_what_the_checker_counts(charge: Charge) -> None:
    """Whatever the plan: changes, moves, gaps, retrainings and long overheads."""
    for seed in range(100):
        chance = random.Random(seed)
        drawn = random_slots(chance, board("A100-40GB"), stretches=4)
        tenants = tuple(
            replace(
                tenant(name, [chance.choice((5.0, 1000.0))] * len(drawn)),
                overhead_s=chance.choice((0.0, 0.5, 1.5, 3.0)),
                configurations=make.only(0.5, {2: 3}),
            )
            for name in "ab"
        )
        initial = chance.choice((None, Initial(), Initial(drawn[-1])))
        slot_s = chance.choice((1.0, 2.0))
        chosen = Problem(board("A100-40GB"), slot_s, len(drawn), charge, tenants, initial)
        plan = replace(PLAN, slots=tuple(map(Allocation, drawn)), retrainings=())
        total = sum(series(chosen, plan, name).goodput.sum() for name in "ab")
        assert total == pytest.approx(goodput_of(chosen, plan)), seed


def test_survivors_serve_on_and_new_instances_wait() -> None:
    bert = series(problem(Charge.SURVIVORS, overhead_s=1.5))
    np.testing.assert_allclose(bert.capability, [25, 25, 0, 5, 10, 0])
    np.testing.assert_allclose(bert.goodput, [10, 10, 0, 2.5, 5, 0])


def test_goodput_is_the_mean_over_scenarios_not_of_their_mean() -> None:
    scenarios = [[float(10 * n)] for n in range(11)]
    chosen = replace(alone(Charge.PAPER, 1), tenants=(tenant("bert", *scenarios),))
    bert = series(chosen, serving([(0, 4)]))
    assert bert.arrivals[0] == 50
    assert bert.goodput[0] == pytest.approx(0.5 * (10 + 20 + 8 * 30) / 11)
    assert bert.band is not None
    assert [quantile[0] for quantile in bert.band] == pytest.approx([10, 90])


def test_a_point_forecast_has_no_band() -> None:
    assert series(problem()).band is None


# Words, axes and colours


def test_the_charts_show_completions_and_every_series() -> None:
    board_chart, bert, _ = plan_charts(problem(), PLAN)
    assert isinstance(board_chart, Slices)
    assert isinstance(bert, Lines)
    assert board_chart.retrained == (("bert", 5.0),)
    assert [name for name, *_ in legend_of(bert)] == ["goodput", "capability", "arrivals"]
    assert bert.marks == (5.0,)


# Files


def test_png_is_1600_pixels_wide_and_shows_every_tenant(tmp_path: Path) -> None:
    from matplotlib.image import imread

    draw_plan(problem(), PLAN, tmp_path / "plan.png")
    content = (tmp_path / "plan.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width == 1600
    assert height > 800
    pixels = np.rint(imread(tmp_path / "plan.png")[..., :3] * 255).astype(int)
    for shade in shades(2):
        colour = [int(shade.fill[at : at + 2], 16) for at in (1, 3, 5)]
        assert (pixels == colour).all(axis=2).sum() > 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["plan.png"]
