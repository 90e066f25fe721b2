"""Rates as they are measured, and placements made with them."""

from __future__ import annotations

import pytest
from support.clusters import cluster, tenant

from migrator.cluster.fleet.messages import Report, TenantReport
from migrator.cluster.fleet.placer import (
    MeasuredRates,
    Placer,
    current_scenario,
    emergency_placement,
    room_for,
)


def report(gpu: str, **received: int) -> Report:
    tenants = {name: TenantReport(ready=True, received=n) for name, n in received.items()}
    return Report(gpu, "node", 0, 1, f"http://{gpu}", tenants=tenants)


def test_a_rate_counts_across_moves_and_restarts() -> None:
    measured = MeasuredRates(20.0)
    for at_s in range(10):
        measured.add(report("g1", a=100 * at_s), float(at_s))
    measured.add(report("g2", a=5000), 10.0)  # what it counted before we looked says nothing
    for at_s in range(11, 16):
        measured.add(report("g2", a=5000 + 100 * (at_s - 10)), float(at_s))
    measured.add(report("g2", a=100), 16.0)  # its daemon was started again
    assert measured.rates_rps()["a"] == 1500 / 16
    assert MeasuredRates(20.0).rates_rps() == {}


def test_the_scenario_as_it_stands_has_the_gpus_that_are_there_and_the_rates_measured() -> None:
    scenario = cluster(
        [tenant("a", rps=700), tenant("b", rps=500)],
        [{"board": "A100-40GB", "name": "g", "count": 3}],
    )
    current = current_scenario(scenario, ["g-1", "g-3"], {"a": 12.5}, move_s=3.0)
    assert [gpu.name for gpu in current.gpus] == ["g-1", "g-3"]
    assert current.rules.move_s == 3.0
    (measured,) = current.tenants[0].served.values()
    assert abs(measured.trace.mean_rps - 12.5) < 0.1
    assert current.tenants[1] == scenario.tenants[1]


def test_refugees_go_to_the_least_busy_gpu_that_the_rules_allow() -> None:
    scenario = cluster(
        [tenant("a"), tenant("b", rps=900), tenant("c", rps=100), tenant("d", rps=50)],
        [{"board": "A100-40GB", "name": "g", "count": 2}],
        apart=[["a", "c"]],
    )
    homes = {"a": "g-1"}
    assert emergency_placement(scenario, ["c"], homes) == {"c": "g-2"}
    assert emergency_placement(scenario, ["b", "c", "d"], homes) == {
        "b": "g-2",
        "c": "g-2",
        "d": "g-1",
    }


def test_tenants_without_room_are_left_out() -> None:
    tenants = [tenant(name, rps=10, min_gpcs=4) for name in "abc"]
    scenario = cluster(tenants, [{"board": "A100-40GB", "name": "g"}])
    assert len(emergency_placement(scenario, ["b", "c"], {"a": "g"})) == 0
    assert emergency_placement(scenario, ["a"], {}) == {"a": "g"}


@pytest.mark.parametrize(
    ("least_gpcs", "fit"),
    [((3, 3), True), ((4, 3), True), ((3, 3, 1), False), ((3, 2, 2), True), ((1,) * 7, True)],
)
def test_there_is_room_where_a_configuration_has_an_instance_for_each(
    least_gpcs: tuple[int, ...], fit: bool
) -> None:
    """3 + 3 + 1 are seven, and yet no A100 has them at once."""
    tenants = [tenant(f"t{n}", rps=10, min_gpcs=gpcs) for n, gpcs in enumerate(least_gpcs)]
    scenario = cluster(tenants, [{"board": "A100-40GB", "name": "g"}])
    assert room_for(scenario, [entry["name"] for entry in tenants], scenario.gpus[0]) == fit


def test_an_instance_without_the_memory_it_needs_is_no_room() -> None:
    tenants = [tenant(name, rps=10, memory_gib=15) for name in "abc"]  # 3g.20gb and above
    scenario = cluster(tenants, [{"board": "A100-40GB", "name": "g"}])
    assert room_for(scenario, ["a", "b"], scenario.gpus[0])
    assert not room_for(scenario, ["a", "b", "c"], scenario.gpus[0])


def test_a_tenant_without_requests_counts_a_little_so_that_moves_are_never_free() -> None:
    measured = MeasuredRates(20.0)
    for at_s in range(10):
        measured.add(report("g1", a=0), float(at_s))
    assert measured.rates_rps() == {"a": 1.0}


def test_moves_are_made_in_an_order_that_breaks_no_rule_on_the_way() -> None:
    scenario = cluster(
        [tenant(name) for name in "abc"],
        [{"board": "A100-40GB", "name": "g", "count": 2}],
        apart=[["a", "b"]],
    )
    placer = Placer(scenario)
    homes = {"a": "g-1", "b": "g-2", "c": "g-1"}
    assert placer.next_move({"a": "g-2", "b": "g-1"}, homes) is None  # a swap needs a third GPU
    assert placer.next_move({"a": "g-2", "c": "g-2"}, homes) == ("c", "g-2")
    assert placer.next_move({"a": "g-2"}, {"a": "g-1", "c": "g-1"}) == ("a", "g-2")
