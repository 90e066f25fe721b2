"""Rates of traces: multiplied, and as copies that are added up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.scenario import Trace

COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=80)


def trace(counts: list[int]) -> Trace:
    return Trace("t", np.array(counts, dtype=np.int64))


@given(counts=COUNTS, copies=st.integers(1, 30), spread_s=st.integers(0, 40))
def test_every_copy_is_the_trace_some_seconds_late(
    counts: list[int], copies: int, spread_s: int
) -> None:
    found = trace(counts).superposed(copies, spread_s).counts
    delays = [copy * min(spread_s + 1, len(counts)) // copies for copy in range(copies)]
    wanted = [sum(counts[abs(at - delay)] for delay in delays) for at in range(len(counts))]
    assert found.tolist() == wanted


@given(counts=COUNTS, factor=st.floats(0.05, 20), spread_s=st.integers(0, 40))
def test_of_a_part_of_a_copy_requests_are_left_out(
    counts: list[int], factor: float, spread_s: int
) -> None:
    whole = trace(counts).superposed(int(np.ceil(factor)), spread_s).counts
    part = trace(counts).superposed(factor, spread_s, seed=1).counts
    assert (part <= whole).all()
    assert (part == trace(counts).superposed(factor, spread_s, seed=1).counts).all()


def test_chance_does_not_become_bursts_and_changes_of_minutes_stay() -> None:
    rng = np.random.default_rng(0)
    rate_rps = np.where(np.arange(3600) // 600 % 2, 8.0, 4.0)
    found = trace(rng.poisson(rate_rps).tolist())
    factor = 200.5
    for scaled in (found.scaled(factor), found.superposed(factor, 60)):
        assert scaled.mean_rps == pytest.approx(factor * found.mean_rps, rel=0.02)
        assert scaled.counts[700:1200].mean() == pytest.approx(factor * 8, rel=0.05)
        assert scaled.counts[1300:1800].mean() == pytest.approx(factor * 4, rel=0.05)

    def jumps(counts: np.ndarray) -> float:
        """Differences of neighbouring seconds over the mean."""
        steady = counts[700:1200]
        return float(np.abs(np.diff(steady)).mean() / steady.mean())

    assert jumps(found.scaled(factor).counts) > 0.3
    assert jumps(found.superposed(factor, 60).counts) < 0.05
