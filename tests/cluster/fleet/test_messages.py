"""Who is to live where, from what agents say."""

from __future__ import annotations

import msgspec

from migrator.cluster.fleet.cluster_map import ClusterMap, next_map
from migrator.cluster.fleet.messages import (
    Report,
    TenantReport,
    homes_from,
    misplaced,
    missing_tenants,
    unserved,
)


def report(gpu: str, *ready: str, waiting: tuple[str, ...] = (), up: bool = True) -> Report:
    tenants = {name: TenantReport(ready=True) for name in ready}
    tenants |= {name: TenantReport(ready=False) for name in waiting}
    return Report(gpu, f"node of {gpu}", 0, 1, f"http://{gpu}", begun=True, up=up, tenants=tenants)


def by_gpu(*reports: Report) -> dict[str, Report]:
    return {of_gpu.gpu: of_gpu for of_gpu in reports}


def test_a_new_head_learns_from_agents_and_prefers_those_that_take_requests() -> None:
    both = by_gpu(report("g1", "a", waiting=("b",)), report("g2", "b"))
    assert homes_from(both) == {"a": "g1", "b": "g2"}


def test_homeless_are_those_of_gpus_that_are_gone_and_of_none() -> None:
    assert unserved(["a", "b", "c"], {"a": "g1", "b": "g2"}, ["g1"]) == ["b", "c"]


def test_a_daemon_lets_go_of_a_tenant_only_once_its_home_serves_it() -> None:
    def to_release(home: str, *reports: Report) -> list[tuple[str, str]]:
        return misplaced({"a": home}, by_gpu(*reports), by_gpu(*reports))

    assert to_release("g1", report("g1", "a"), report("g2", "a")) == [("g2", "a")]
    assert not to_release("g1", report("g1", waiting=("a",)), report("g2", "a"))
    assert not to_release("g1", report("g2", "a"))
    assert not to_release("g3", report("g2", "a"))


def test_a_daemon_that_hangs_does_not_restart_with_a_tenant_served_elsewhere() -> None:
    hangs = Report("g1", "n", 0, 1, "http://g1", begun=True, assigned=("a", "b"))
    alive = by_gpu(report("g2", "a"))
    assert misplaced({"a": "g2", "b": "g1"}, alive, {"g1": hangs, **alive}) == [("g1", "a")]


def test_a_new_head_knows_the_tenants_of_a_starting_daemon() -> None:
    starts = Report("g1", "n", 0, 1, "http://g1", begun=True, assigned=("a", "b"))
    assert homes_from({"g1": starts, **by_gpu(report("g2", "b"))}) == {"a": "g1", "b": "g2"}


def test_a_tenant_that_its_home_does_not_know_is_missing_but_not_while_that_starts() -> None:
    assert missing_tenants({"a": "g1"}, by_gpu(report("g1"))) == ["a"]
    assert not missing_tenants({"a": "g1"}, by_gpu(report("g1", up=False)))
    assert not missing_tenants({"a": "g1"}, {})


def test_a_map_names_who_is_ready_and_says_why_others_are_away() -> None:
    reports = by_gpu(report("g1", "a", waiting=("b",)))
    newest = next_map(
        ClusterMap(), 3, ["a", "b", "c"], {"a": "g1", "b": "g1"}, reports, {"c": "full"}
    )
    assert newest is not None
    assert (newest.epoch, newest.version) == (3, 1)
    assert newest.homes == {"a": "http://g1"}
    assert newest.away["c"] == "full"
    assert "no instance" in newest.away["b"]
    assert newest.pages == {"g1": "http://g1"}


def test_who_is_in_the_map_stays_in_it_while_its_instances_change() -> None:
    before = ClusterMap(1, 4, {"a": "http://g1"}, {}, {"g1": "http://g1"})
    reports = by_gpu(report("g1", waiting=("a",)))
    assert next_map(before, 1, ["a"], {"a": "g1"}, reports, {}) is None


def test_who_is_in_the_map_stays_in_it_until_a_new_agent_has_asked_the_daemon() -> None:
    before = ClusterMap(1, 4, {"a": "http://g1"}, {"b": "it is on its way to a GPU"}, {})
    unasked = Report("g1", "n", 0, 1, "http://g1", begun=True, has_served=True, assigned=("a", "b"))
    after = next_map(before, 1, ["a", "b"], {"a": "g1", "b": "g1"}, {"g1": unasked}, {})
    assert after is not None
    assert (after.homes, after.away) == (before.homes, before.away)
    for changed in (
        {"url": "http://g1:2"},
        {"assigned": ("b",)},
        {"has_served": False},  # another process that is starting
    ):
        other = msgspec.structs.replace(unasked, **changed)
        after = next_map(before, 1, ["a"], {"a": "g1"}, {"g1": other}, {})
        assert after is not None
        assert list(after.away) == ["a"]


def test_a_later_head_and_a_later_map_come_first() -> None:
    assert ClusterMap(2, 1).order > ClusterMap(1, 9).order > ClusterMap(1, 8).order


def test_a_tenant_that_is_drained_is_away_for_that_reason() -> None:
    drained = TenantReport(ready=False, drained=True)
    reports = {"g1": Report("g1", "n", 0, 1, "http://g1", up=True, tenants={"a": drained})}
    newest = next_map(ClusterMap(), 1, ["a"], {"a": "g1"}, reports, {})
    assert newest is not None
    assert newest.away == {"a": "it is drained"}
