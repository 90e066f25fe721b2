"""Requests one by one: counts kept, in order, uniform inside a second, the same for a seed."""

import numpy as np
import pytest

from migrator.core.scenario import Trace
from migrator.workload.tenant_arrivals import TenantArrivals

COUNTS = np.array([3, 0, 5, 1, 1000, 7, 2, 4], dtype=np.int64)


def arrivals(slot_s: float = 1.0, seed: int = 0, tenant: int = 0) -> TenantArrivals:
    return TenantArrivals(Trace("t", COUNTS), slot_s, seed, tenant)


def test_every_second_has_its_requests_in_order() -> None:
    times = arrivals().times(0, 8)
    assert np.all(np.diff(times) >= 0)
    assert np.histogram(times, bins=np.arange(9))[0].tolist() == COUNTS.tolist()


@pytest.mark.parametrize(("slot_s", "slots"), [(1.0, 8), (2.0, 4), (4.0, 2), (0.5, 16)])
def test_slots_are_what_really_comes_in_them(slot_s: float, slots: int) -> None:
    these = arrivals(slot_s)
    bins = np.arange(slots + 1) * slot_s
    assert np.histogram(these.times(0, 8), bins=bins)[0].tolist() == these.slots(0, 8).tolist()
    assert these.slots(0, 8).sum() == COUNTS.sum()


def test_the_seed_the_tenant_and_the_moment_give_the_requests() -> None:
    again, other_seed, other_tenant = arrivals(), arrivals(seed=1), arrivals(tenant=1)
    assert np.array_equal(arrivals().times(0, 8), again.times(0, 8))
    assert not np.array_equal(again.times(0, 8), other_seed.times(0, 8))
    assert not np.array_equal(again.times(0, 8), other_tenant.times(0, 8))
    assert np.array_equal(again.draws(4, 10), arrivals().draws(4, 10))
    assert not np.array_equal(again.draws(4, 10), again.draws(0, 10))
