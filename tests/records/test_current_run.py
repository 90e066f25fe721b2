"""Rates and percentiles between two looks at what a daemon counts."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.records.recent_traffic import RateMeter, RecentTraffic, percentile_ms

BOUNDS_S = (0.01, 0.1, 1.0)


def answer(
    received: int, in_time: int, late: int = 0, counts: tuple[int, ...] = (0, 0, 0, 0), pid: int = 1
) -> dict[str, Any]:
    latency = {"bounds_s": BOUNDS_S, "counts": counts}
    tenant = {"received": received, "in_time": in_time, "late": late, "latency": latency}
    return {"pid": pid, "tenants": {"a": tenant}}


def test_a_rate_is_the_difference_of_two_looks() -> None:
    pace = RateMeter()
    pace.add(100.0, answer(1000, 900, 100, (900, 0, 0, 100)))
    pace.add(102.0, answer(1100, 975, 125, (900, 75, 25, 100)))
    traffic = pace.pace("a")
    assert (traffic.rate_rps, traffic.in_time_rps, traffic.in_time) == (50.0, 37.5, 0.75)
    assert traffic.p50_ms == pytest.approx(10 + 90 * 50 / 75)
    assert traffic.p99_ms == pytest.approx(100 + 900 * 24 / 25)
    assert pace.pace("other") == RecentTraffic(0.0, 0.0, None)


def test_one_look_tells_latencies_alone() -> None:
    pace = RateMeter()
    pace.add(100.0, answer(10, 10, 0, (10, 0, 0, 0)))
    assert pace.pace("a") == RecentTraffic(p50_ms=5.0, p99_ms=9.9)
    pace.clear()
    assert pace.pace("a") == RecentTraffic()


def test_only_the_last_seconds_count() -> None:
    pace = RateMeter()
    for second in range(60):
        rate = 100 if second < 40 else 10
        so_far = sum(100 if number < 40 else 10 for number in range(second))
        pace.add(float(second), answer(so_far + rate, so_far))
    assert pace.pace("a").rate_rps == 10.0


def test_another_process_counts_anew() -> None:
    pace = RateMeter()
    pace.add(0.0, answer(1000, 1000))
    pace.add(1.0, answer(5, 5, pid=2))
    pace.add(2.0, answer(25, 25, pid=2))
    assert pace.pace("a").rate_rps == 20.0


def test_percentiles_of_nothing_and_beyond_the_last_bound() -> None:
    assert percentile_ms(BOUNDS_S, (0, 0, 0, 0), 0.5) is None
    assert percentile_ms(BOUNDS_S, (0, 0, 0, 7), 0.5) == 1000.0


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from((0.5, 0.99)))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(seed: int, part: float) -> None:
    chance = random.Random(seed)
    values = sorted(chance.uniform(0.0, 0.999) for _ in range(chance.randint(1, 50)))
    counts = [0, 0, 0, 0]
    for value in values:
        counts[next(at for at, bound in enumerate(BOUNDS_S) if value <= bound)] += 1
    rank = next(at for at in range(len(values)) if at + 1 >= part * len(values))
    bucket = next(at for at, bound in enumerate(BOUNDS_S) if values[rank] <= bound)
    percentile = percentile_ms(BOUNDS_S, counts, part)
    assert percentile is not None
    low = 0.0 if bucket == 0 else BOUNDS_S[bucket - 1]
    assert 1e3 * low <= percentile <= 1e3 * BOUNDS_S[bucket] + 1e-9
