"""What the head decides, with agents that obey at once; placements are real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.agents import cluster_run
from support.waiting import until_async

from migrator.cluster.fleet import head as heads
from migrator.cluster.fleet import keyed_tasks, watch
from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.head import Head
from migrator.cluster.fleet.messages import Answer, DeposedError, Report, TenantReport
from migrator.cluster.fleet.overview import overview, overview_text
from migrator.core.errors import InputError, MigratorError

TENANTS = ("a", "b", "c")


class Agents:
    """Three agents that store only their tenants and every order.

    `tenants`: those of each GPU, one letter each; without any no GPU has begun.
    """

    def __init__(self, *tenants: str) -> None:
        self.tenants: dict[str, tuple[str, ...] | None] = dict.fromkeys(("g1", "g2", "g3"))
        self.tenants |= dict(zip(self.tenants, map(tuple, tenants), strict=False))
        self.gone: set[str] = set()
        self.refuse: dict[str, str] = {}
        self.silent_of: set[str] = set()
        self.orders: list[tuple[Any, ...]] = []
        self.received: dict[str, int] = {}
        self.epoch = 0
        self.hangs: set[str] = set()
        self.drained: set[str] = set()
        self.agentless: set[str] = set()
        self.trouble = ""

    async def gpus(self) -> tuple[str, ...]:
        return tuple(self.tenants)

    async def report(self, gpu: str, epoch: int) -> Report | None:
        self.epoch = max(self.epoch, epoch)
        if gpu in self.gone | self.agentless:
            return None
        assigned = self.tenants[gpu]
        tenants = {
            tenant: TenantReport(ready=True, received=self.received.get(tenant, 0))
            for tenant in assigned or ()
            if tenant not in self.silent_of
        }
        begun, hangs = assigned is not None, gpu in self.hangs
        return Report(
            gpu,
            gpu,
            0,
            1,
            f"http://{gpu}",
            self.epoch,
            begun=begun,
            up=begun and not hangs,
            tenants={} if hangs else tenants,
            silent_s=3.0 if hangs else 0.0,
            assigned=assigned or (),
            drained=gpu in self.drained,
        )

    async def answers(self, url: str) -> bool:
        return url.removeprefix("http://") not in self.gone

    async def order(self, gpu: str, name: str, epoch: int, *arguments: Any) -> Answer | None:
        self.orders.append((name, gpu, *arguments))
        if gpu in self.gone:
            return None
        if epoch < self.epoch:
            return Answer(False, "a newer head leads", self.epoch)
        if gpu in self.refuse:
            return Answer(False, self.refuse[gpu], self.epoch)
        assigned = self.tenants[gpu] or ()
        match name:
            case "begin":
                self.tenants[gpu] = arguments[0]
            case "take":
                self.tenants[gpu] = tuple(dict.fromkeys((*assigned, arguments[0])))
            case "drain":
                self.drained = self.drained | {gpu} if arguments[0] else self.drained - {gpu}
            case "release":
                self.tenants[gpu] = tuple(tenant for tenant in assigned if tenant != arguments[0])
        return Answer(True, "done", self.epoch)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterRun:
    for module, name in ((heads, "RECONCILE_S"), (keyed_tasks, "AGAIN_S"), (heads, "ROUTED_S")):
        monkeypatch.setattr(module, name, 0.01)
    gpus = [{"name": gpu} for gpu in ("g1", "g2", "g3")]
    boards = [{"board": "A100-40GB", **gpu} for gpu in gpus]
    rules = {"gpus": boards, "apart": [["a", "b"]], "move_s": 1.0}
    return cluster_run(tmp_path, TENANTS, gpus, window_s=4, cluster=rules)


def led(
    run: ClusterRun,
    agents: Agents,
    test: Callable[[Head], Awaitable[None]] | None = None,
    **keys: Any,
) -> Head:
    """A head that leads until all tenants are served and the test is done."""

    async def served(head: Head) -> None:
        await until_async(lambda: all_served(head))
        if test is not None:
            await test(head)

    async def inside() -> Head:
        head, stop = Head(run, agents, **keys), asyncio.Event()
        leading = asyncio.create_task(head.run(stop))
        waiting = asyncio.ensure_future(served(head))
        await asyncio.wait([leading, waiting], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        if not waiting.done():
            waiting.cancel()
        await leading
        await waiting
        return head

    return asyncio.run(inside())


def all_served(head: Head) -> bool:
    return set(head.state.map.homes) == set(TENANTS)


def test_it_places_all_tenants_once_and_begins_every_gpu(run: ClusterRun) -> None:
    agents = Agents()

    head = led(run, agents)
    assert head.state.epoch == 1
    begun = [order for order in agents.orders if order[0] == "begin"]
    assert sorted(order[1] for order in begun) == ["g1", "g2", "g3"]
    assert head.state.homes["a"] != head.state.homes["b"]
    assert sorted(name for _, _, names in begun for name in names) == list(TENANTS)


def test_without_room_for_all_tenants_nothing_begins_and_the_reason_is_raised(
    tmp_path: Path,
) -> None:
    agents = Agents()
    names, gpus = ["t0", "t1", "t2", "t3"], [{"name": tenant} for tenant in agents.tenants]
    rules = {"gpus": [{"board": "A100-40GB", **gpu} for gpu in gpus], "apart": [names]}
    full = cluster_run(tmp_path, names, gpus, window_s=4, cluster=rules)
    with pytest.raises(InputError, match="no GPU has room for t"):
        led(full, agents)
    assert "begin" not in [order[0] for order in agents.orders]
    assert set(agents.tenants.values()) == {None}


def test_a_new_head_changes_nothing_and_has_a_higher_epoch(run: ClusterRun) -> None:
    agents = Agents("ac", "b", "")
    agents.epoch = 4

    head = led(run, agents)
    assert (head.state.epoch, agents.epoch) == (5, 5)
    assert head.state.homes == {"a": "g1", "b": "g2", "c": "g1"}
    assert not [order for order in agents.orders if order[0] != "stop"]


def test_an_older_head_ends_as_soon_as_it_hears_of_a_newer(run: ClusterRun) -> None:
    agents = Agents("ac", "b", "")

    async def test(_: Head) -> None:
        agents.epoch = 9
        await asyncio.sleep(30)

    with pytest.raises(DeposedError):
        led(run, agents, test)


def test_who_lived_on_a_gpu_that_went_is_taken_by_others_as_the_rules_want(run: ClusterRun) -> None:
    agents = Agents("ac", "b", "")

    async def test(head: Head) -> None:
        agents.gone.add("g1")
        await until_async(lambda: "g1" in head.watch.dead)
        await until_async(lambda: all_served(head) and head.state.homes["a"] == "g3")
        agents.gone.clear()  # it is back, and still has tenants that others serve by now
        await until_async(lambda: not agents.tenants["g1"])

    head = led(run, agents, test)
    assert head.state.homes["b"] == "g2"
    assert head.state.homes["c"] in ("g2", "g3")
    assert ("release", "g1", "a") in agents.orders
    assert "g1 is there again" in [event for _, event in head.state.events]


def test_a_gpu_that_refuses_a_tenant_is_asked_again_and_the_reason_is_reported(
    run: ClusterRun,
) -> None:
    agents = Agents("ac", "b", "")
    agents.refuse = {"g3": "its disk is full", "g2": "its disk is full"}

    async def test(head: Head) -> None:
        agents.gone.add("g1")
        await until_async(lambda: head.state.map.away.get("a") == "its disk is full")
        agents.refuse.clear()
        await until_async(lambda: all_served(head))

    led(run, agents, test)


def test_a_tenant_moves_at_a_windows_edge_when_it_pays_and_is_served_throughout(
    run: ClusterRun,
) -> None:
    """b and c share a GPU and both get far more than it can answer, while another is empty."""
    agents = Agents("a", "bc", "")
    seen: list[int] = []

    async def flood(head: Head) -> None:
        while True:
            agents.received["b"] = agents.received.get("b", 0) + 250
            agents.received["c"] = agents.received.get("c", 0) + 250
            seen.append(len(head.state.map.homes))
            await asyncio.sleep(0.1)

    async def test(head: Head) -> None:
        flooding = asyncio.create_task(flood(head))
        await until_async(lambda: head.state.moves)
        await until_async(lambda: not head.watch.last["g2"].report.tenants.keys() >= {"b", "c"})
        flooding.cancel()

    head = led(replace(run), agents, test)
    assert head.state.homes["b"] != head.state.homes["c"]
    assert set(seen) == {3}
    take = next(number for number, order in enumerate(agents.orders) if order[0] == "take")
    release = next(number for number, order in enumerate(agents.orders) if order[0] == "release")
    assert take < release


def test_a_tenant_is_let_go_only_once_the_new_map_is_out_and_its_labels_follow(
    run: ClusterRun,
) -> None:
    agents = Agents("ac", "b", "")

    def publish(newest: ClusterMap) -> None:
        agents.orders.append(("publish", newest.homes.get("c")))

    async def test(head: Head) -> None:
        assert await head.move("c", "g3") == "c moved from g1 to g3"
        assert await head.move("c", "g3") == "c is on g3 already"

    led(run, agents, test, publish=publish)
    steps = [order for order in agents.orders if "c" in order or order == ("publish", "http://g3")]
    assert steps == [
        ("take", "g3", "c"),
        ("publish", "http://g3"),
        ("release", "g1", "c"),
        ("take", "g3", "c"),  # what g1 accepted meanwhile is brought
    ]


def test_a_tenant_stays_until_another_gpu_reports_that_it_serves_it(
    run: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "READY_S", 0.1)
    agents = Agents("a", "b", "")

    async def test(head: Head) -> None:
        await until_async(lambda: {"a", "b"} <= set(head.state.map.homes))
        agents.silent_of.add("a")
        with pytest.raises(MigratorError, match="a stays on g1"):
            await head.move("a", "g3")
        assert head.state.homes["a"] == "g1"
        assert ("release", "g1", "a") not in agents.orders

    led(run, agents, test)


def test_tenants_of_a_daemon_that_hangs_are_served_elsewhere_and_it_lets_go_of_them(
    run: ClusterRun,
) -> None:
    agents = Agents("ac", "b", "")

    async def test(head: Head) -> None:
        agents.hangs.add("g1")
        await until_async(lambda: all_served(head) and head.state.homes["a"] == "g3")
        assert "g1" not in head.state.map.pages  # gateways have closed their connections to it
        # before it comes back, or is ended and started with its tenants
        await until_async(lambda: not agents.tenants["g1"])
        assert agents.hangs

    head = led(run, agents, test)
    events = [event for _, event in head.state.events]
    assert "g1 is given up: its daemon has not answered for 3 s" in events


def test_while_only_the_agent_is_gone_its_tenants_are_never_away(
    run: ClusterRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ALONE_S", 0.2)
    agents = Agents("ac", "b", "")
    away: set[str] = set()

    async def test(head: Head) -> None:
        agents.agentless.add("g1")

        def moved() -> bool:
            away.update(head.state.map.away)
            return "http://g1" not in head.state.map.homes.values()

        await until_async(moved)

    led(run, agents, test)
    assert not away


def test_a_drained_gpu_is_emptied_and_gets_no_tenant_until_it_is_undrained(
    run: ClusterRun,
) -> None:
    agents = Agents("ac", "b", "")
    seen: list[int] = []

    async def test(head: Head) -> None:
        assert await head.drain("g1", True) == "g1 is drained"
        entry = next(gpu for gpu in overview(head)["gpus"] if gpu["gpu"] == "g1")
        assert (entry["state"], entry["words"]) == ("drained", "its tenants are being moved")

        def empty() -> bool:
            seen.append(len(head.state.map.homes))
            return not agents.tenants["g1"]

        await until_async(empty)
        await until_async(lambda: not next(iter(overview(head)["gpus"]))["holds"])
        assert next(iter(overview(head)["gpus"]))["words"] == "it can be removed"
        with pytest.raises(InputError, match="drained"):
            await head.move("a", "g1")
        with pytest.raises(InputError, match="no other GPU has room for a"):
            await head.drain(head.state.homes["a"], True)  # only b's is left
        await head.drain("g1", False)
        await until_async(lambda: "g1" in head.watch.open)

    led(run, agents, test)
    assert set(seen) == {3}
    for name in ("a", "c"):
        taken = next(order for order in agents.orders if order[0] == "take" and order[2] == name)
        assert agents.orders.index(taken) < agents.orders.index(("release", "g1", name))


def test_a_tenant_that_an_operator_has_drained_is_not_moved(run: ClusterRun) -> None:
    agents = Agents("ac", "b", "")

    async def test(head: Head) -> None:
        last = head.watch.last["g1"]
        tenants = last.report.tenants
        for drained in (False, True):
            tenants["c"] = TenantReport(True, drained=drained)
            assert head._may_move("c") is not drained

    led(run, agents, test)


def test_a_new_head_goes_on_with_a_drain(run: ClusterRun) -> None:
    agents = Agents("ac", "b", "")
    agents.drained = {"g1"}

    async def test(head: Head) -> None:
        await until_async(lambda: not agents.tenants["g1"])
        await until_async(lambda: all_served(head))

    led(run, agents, test)


def test_a_store_that_does_not_take_the_map_is_named_until_it_does(run: ClusterRun) -> None:
    agents = Agents("ac", "b", "")
    broken = [True]

    def publish(_: ClusterMap) -> None:
        if broken:
            raise MigratorError("the shared store does not answer")

    async def test(head: Head) -> None:
        await until_async(lambda: all_served(head) and head.store_trouble)
        assert "the shared store does not answer" in overview_text(overview(head))
        broken.clear()
        await until_async(lambda: not head.store_trouble)
        assert "in trouble" not in overview_text(overview(head))

    led(run, agents, test, publish=publish)
