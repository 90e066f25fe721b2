"""What a gain is worth after its window."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from migrator.control.value_after_window import AHEAD, ValueAfterWindow


def life(*, kept: float, completed: float, growth: float = 0.0) -> ValueAfterWindow:
    """A tenant whose retrainings take half a window and complete at that part of it."""
    window = ValueAfterWindow(kept)
    window.plan(0.5, growth)
    window.complete(completed)
    return window


def best(left: float, kept: float, completed: float, cost: float, *, now: bool) -> float:
    """The goodput of all windows with the best later decisions, by trying both in every window."""

    @cache
    def goodput(window: int, begins: float, faded: int) -> float:
        """From a window on; the accuracy `begins` was that of `faded` windows before."""
        if window > AHEAD:
            return 0.0
        accuracy = begins * kept**faded
        again = completed * accuracy + (1 - completed) - cost + goodput(window + 1, 1.0, 1)
        left_out = accuracy + goodput(window + 1, begins, faded + 1)
        if window == 0:
            return again if now else left_out
        return max(again, left_out)

    return goodput(0, left, 0)


def test_plans_with_the_value_decide_as_the_best_sequence_of_decisions() -> None:
    """Without knowing later costs. What wrong decisions lose is next to nothing."""
    draw = np.random.default_rng(5)
    at_stake, lost, wrong = 0.0, 0.0, 0
    for _ in range(150):
        kept, completed, left = draw.uniform([0.4, 0.1, 0.1], [0.95, 1.0, 0.95])
        cost = float(draw.uniform(0, 2))
        value = life(kept=kept, completed=completed).windows(left)
        retrains = (1 - completed) * (1 - left) - cost + value * (1 - left) > 0
        ahead = best(left, kept, completed, cost, now=True) - best(
            left, kept, completed, cost, now=False
        )
        at_stake += abs(ahead)
        if retrains != (ahead > 0):
            lost, wrong = lost + abs(ahead), wrong + 1
    assert wrong <= 3
    assert lost < 0.002 * at_stake


def test_a_gain_counts_until_the_next_retraining_completes() -> None:
    windows = life(kept=0.6, completed=0.25).windows(0.6)
    assert windows == pytest.approx(0.6 * 0.25, abs=1e-3)


def test_a_gain_that_no_later_retraining_replaces_counts_until_it_has_faded() -> None:
    windows = life(kept=0.6, completed=0.25, growth=2.0).windows(0.6)
    assert windows == pytest.approx(0.6 / (1 - 0.6), abs=1e-3)


def test_the_longer_a_tenant_was_left_out_the_more_its_gain_is_worth() -> None:
    windows = [life(kept=0.7, completed=0.5).windows(0.7**skipped) for skipped in range(1, 5)]
    assert windows == sorted(windows)
    assert windows[-1] > 2 * windows[0]


def test_data_that_does_not_drift_does_not_make_a_gain_worth_infinitely_much() -> None:
    window = life(kept=0.7, completed=0.5)
    for _ in range(50):
        window.end_window(0.8)
        window.begin_window(0.96)
    assert window.windows(0.1) < 20


def test_a_retraining_that_takes_most_of_the_window_is_expected_to_complete_late() -> None:
    """Before any has completed, and after one of another length has."""
    window = ValueAfterWindow()
    window.plan(0.8, 0.0)
    assert window.completed == pytest.approx(0.9)
    window.complete(0.8)
    window.plan(0.4, 0.0)
    assert window.completed == pytest.approx(0.4)
    window.plan(2.0, 0.0)
    assert window.completed == 1.0
