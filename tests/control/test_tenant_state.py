"""What a tenant's state learns from one window for the next."""

from __future__ import annotations

import pytest

from migrator.control.tenant_state import GainLifetime


def windows(life: GainLifetime, count: int, *, kept: float, completed: float | None) -> float:
    """The value of a gain after `count` windows that all went the same way."""
    for _ in range(count):
        if completed is not None:
            life.complete(completed)
        life.end_window(0.8)
        life.begin_window(0.8 * kept)
    return life.windows


def test_a_gain_counts_until_the_next_retraining_completes() -> None:
    always = windows(GainLifetime(), 30, kept=0.6, completed=0.25)
    assert always == pytest.approx(0.6 * 0.25, abs=1e-6)


def test_a_gain_of_a_tenant_that_is_never_retrained_counts_until_it_has_faded() -> None:
    never = windows(GainLifetime(), 30, kept=0.6, completed=None)
    assert never == pytest.approx(0.6 + 0.6**2 / (1 - 0.6), abs=1e-6)


def test_data_that_does_not_drift_does_not_make_a_gain_worth_infinitely_much() -> None:
    assert windows(GainLifetime(), 50, kept=1.2, completed=None) < 20
