"""Batches of live runs beside those of simulations: durations, gaps, where answers are lost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from support.scenarios import profile

from benchmarks.gpu.batches import LIVE, SIMULATED, groups, losses
from benchmarks.recorded_batches import Recorded, gpcs_of, measured_slowdown, slowdown
from migrator.core.batch import Batch, BatchKind
from migrator.core.catalogue import board
from migrator.core.profiles import Service
from migrator.records.rows import UnitRecord

BOARD = board("H200-141GB-MPS")
PART = BOARD.sms_of(1) / BOARD.sms
"""Of the board: a slice."""
ALONE_S = 0.4
"""Four requests on a slice."""
LAST_S = 100.0
SECONDS = round(LAST_S)


def held(
    place: int, tenant: str = "a", state: str = "ready", until_s: float = LAST_S
) -> UnitRecord:
    return UnitRecord(f"1g@{place}", 0.0, place, 1.0, tenant, "inference", state, until_s)


def batch(
    begin_s: float, took_s: float = ALONE_S, place: str = "1g@0", kind: BatchKind = BatchKind.OWN
) -> Batch:
    """A full batch whose requests waited for half a second."""
    end_s = begin_s + took_s
    came_s, taken_s = begin_s - 0.5, begin_s - 0.002
    in_time = 0 if kind is BatchKind.EVALUATION else 4
    times = came_s, taken_s, taken_s, begin_s, end_s, end_s + 0.001
    return Batch("a", place, kind, 4, 9, *times, in_time)


def recorded(batches: Iterable[Batch], *units: UnitRecord, name: str = LIVE) -> Recorded:
    services = {tenant: Service(tenant, profile(100.0), 2.0, 4) for tenant in "ab"}
    ordered = tuple(sorted(batches, key=lambda batch: batch.began_s))
    return Recorded(name, ordered, units or (held(0),), services, BOARD, LAST_S)


def back_to_back(took_s: float, gap_s: float = 0.0, place: str = "1g@0") -> list[Batch]:
    starts = np.arange(0.5, LAST_S - 1, took_s + gap_s)
    return [batch(float(start), took_s, place) for start in starts]


def test_a_place_says_its_size() -> None:
    assert gpcs_of("2g@4", BOARD) == 2
    assert gpcs_of("50%#1", BOARD) == BOARD.compute_slices / 2


def test_batches_are_compared_with_the_profile_by_what_ran_beside() -> None:
    longer = [batch(start, 1.2 * ALONE_S) for start in range(1, 21)]
    lent = [batch(start + 0.1, 2 * ALONE_S, kind=BatchKind.LENT) for start in range(11, 21)]
    found = groups(recorded([*longer, *lent], held(0), held(4, "b", "training", 8.3)))
    own = {beside: group for (_, _, kind, beside), group in found.items() if kind == "own"}
    # the two that are left are too few for a group
    counts = {beside: group.count for beside, group in own.items()}
    assert counts == {"a training": 8, "another on its slices": 10}
    assert own["a training"].ratio == pytest.approx(1.2)
    assert own["a training"].waited_s == pytest.approx(0.498)
    [borrowed] = [group for (_, _, kind, _), group in found.items() if kind == "lent"]
    assert borrowed.ratio == pytest.approx(2.0)


def test_the_slowdown_is_divided_among_its_causes() -> None:
    """20 ms every batch, twice as long if the whole board served, by a third on its slices."""
    random, batches = np.random.default_rng(0), []
    for start in range(1, 91):
        others, rows = int(random.integers(4)), int(random.integers(1, 5))
        lent = bool(random.integers(2))
        alone_s = rows * ALONE_S / 4
        took_s = alone_s * (1 + (others + lent) * PART + lent / 3) + 0.02
        kinds = [("1g@0", BatchKind.OWN), *[("1g@0", BatchKind.LENT)] * lent]
        kinds += [(f"1g@{place}", BatchKind.EVALUATION) for place in range(1, others + 1)]
        batches += [batch(start, took_s, *kind)._replace(rows=rows) for kind in kinds]
    found = slowdown(recorded(batches))
    assert found.fixed_s == pytest.approx(0.02)
    assert found.serving == pytest.approx(1.0)
    assert found.on_slices == pytest.approx(1 / 3)
    assert measured_slowdown(recorded(batches)) is None, "too few"
    often = recorded(batches * 10)
    assert measured_slowdown(often) is not None


@pytest.mark.parametrize(
    ("worse", "why"),
    [
        (back_to_back(1.25 * ALONE_S), "slower or late batches"),
        (back_to_back(ALONE_S, 0.1), "no batch"),
    ],
)
def test_lost_answers_are_put_down_to_their_cause(worse: list[Batch], why: str) -> None:
    better = recorded(back_to_back(ALONE_S), name=SIMULATED)
    live = recorded(worse)
    found = {loss.why: loss.answers for loss in losses(live, better, {"a": np.ones(SECONDS, bool)})}
    missing = sum(batch.in_time for batch in better.batches) - sum(
        batch.in_time for batch in live.batches
    )
    assert sum(found.values()) == pytest.approx(missing)
    assert found[why] == pytest.approx(missing, rel=0.05)


def test_evaluations_and_lent_batches_are_causes_of_their_own() -> None:
    full = back_to_back(ALONE_S)
    evaluated = [one._replace(kind=BatchKind.EVALUATION, in_time=0) for one in full[:50]]
    lent = [batch(start, place="1g@1", kind=BatchKind.LENT) for start in range(1, 11)]
    live = recorded([*evaluated, *full[50:]])
    simulated = recorded([*full, *lent], name=SIMULATED)
    first, second, *rest = losses(live, simulated, {"a": np.ones(SECONDS, bool)})
    assert (first.why, second.why) == ("evaluations", "batches on lent slices")
    assert first.answers == pytest.approx(200, rel=0.02)
    assert second.answers == 40
    assert all(abs(loss.answers) < 4 for loss in rest)
