"""Every action on the real parts of a daemon, without processes: outcome, words, what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.live_context import NoRollout, idle_context, operator_actions
from support.live_daemon import scenario_file
from support.stand_in_worker import StandInWorker, infer
from support.waiting import until_async

from migrator.control.events import Create
from migrator.core.action import Acted, ActionKind, Outcome
from migrator.core.errors import HttpError, InputError
from migrator.core.problem import Instance, Kind, Task
from migrator.live.context import Context
from migrator.live.daemon import new_controller
from migrator.live.learning import Learning
from migrator.live.operator_actions import DrainedTenants
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.live.versions import Version
from migrator.records.rows import ActionRecord
from migrator.workload.live import read_live


class Kept(LiveRecorder):
    """Keeps what is recorded of actions and versions."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.actions: list[ActionRecord] = []
        self.begun: list[tuple[str, int, str]] = []

    def action(self, row: ActionRecord) -> None:
        self.actions.append(row)

    def begin_version(self, tenant: str, version: Version, words: str = "") -> None:
        self.begun.append((tenant, version.number, words))


class Bench:
    """The services of a daemon that does not run, and what they did."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.weights = folder, folder / "weights"
        self.weights.write_bytes(b"weights")
        live = read_live(scenario_file(folder, "photos", "cameras"))
        context = idle_context(DaemonOptions(live, folder / "state"))
        self.context, self.clock = context, context.clock
        self.tenants, self.router, self.executor = context.tenants, context.router, context.executor
        self.recorder, self.rollout = Kept(context), NoRollout()
        controller = new_controller(context, self.recorder, lambda _: None)
        self.planning = controller.planning
        learning = Learning(context, self.rollout, self.recorder)
        self.actions, self.actuation = operator_actions(
            context, controller, learning, self.recorder
        )
        self.actions.restore_drained()

    def versions(self, tenant: str, count: int) -> None:
        for number in range(count):
            added = self.context.versions_of(tenant).add(
                self.weights, 0.5 + number / 10, {"window": 3 * number}
            )
            self.tenants[tenant].switch_version(added)

    async def act(self, kind: str, tenant: str | None = None) -> Acted:
        return await self.actions.act(ActionKind(kind), tenant, "cli")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.planning.close()


async def test_pausing_reaches_the_executor_and_is_recorded(bench: Bench) -> None:
    first = await bench.act("pause")
    assert first.outcome is Outcome.DONE
    assert bench.executor.paused
    assert (await bench.act("pause")).words == "reconfiguration was paused already"
    bench.executor.follow(0.0, [(Instance(0, 4, Task("photos", Kind.INFERENCE)),)], 1.0)
    assert bench.actuation.given == []
    await bench.act("resume")
    assert bench.actuation.given == [Create(Instance(0, 4))]
    assert (await bench.act("resume")).words == "reconfiguration was not paused"
    assert [(e.kind, e.tenant, e.who, e.outcome) for e in bench.recorder.actions] == [
        ("pause", None, "cli", "done"),
        ("pause", None, "cli", "done"),
        ("resume", None, "cli", "done"),
        ("resume", None, "cli", "done"),
    ]
    assert bench.recorder.actions[0].words == first.words


async def test_rolled_back_the_version_before_serves_and_is_learned_from(bench: Bench) -> None:
    bench.versions("photos", 3)
    acted = await bench.act("roll-back", "photos")
    assert acted == Acted(Outcome.DONE, "photos: version 2 serves again, version 3 is withdrawn")
    photos = bench.tenants["photos"]
    assert photos.version is not None
    assert (photos.version.number, photos.accuracy, photos.model.since) == (2, 0.6, 3)
    assert bench.rollout.versions == [("photos", 2)]
    assert bench.recorder.begun == [("photos", 2, "rolled back by an operator from version 3")]
    newest = bench.context.versions_of("photos").newest_good()
    assert newest is not None
    assert newest.number == 2
    assert (await bench.act("roll-back", "photos")).outcome is Outcome.DONE
    last = await bench.act("roll-back", "photos")
    assert (last.outcome, bench.rollout.versions[-1]) == (Outcome.REFUSED, ("photos", 1))
    assert "no earlier version" in last.words


async def test_where_all_earlier_versions_are_damaged_it_fails_and_changes_nothing(
    bench: Bench,
) -> None:
    bench.versions("photos", 2)
    versions = bench.context.versions_of("photos")
    (versions.folder / "000001.safetensors").write_bytes(b"damaged")
    assert (await bench.act("roll-back", "photos")).outcome is Outcome.FAILED
    assert bench.rollout.versions == []
    assert versions.earlier(3) == (2, 1)


async def test_drained_it_refuses_and_is_left_out_of_plans(bench: Bench) -> None:
    acted = await bench.act("drain", "photos")
    assert acted.outcome is Outcome.DONE
    with pytest.raises(HttpError, match="photos: it is drained"):
        await infer(bench.router, "photos", np.zeros((1, 3)))
    assert bench.router.counts["photos"].total.received == 0
    assert [name for name, tenant in bench.tenants.items() if tenant.planned] == ["cameras"]
    assert (await bench.act("drain", "photos")).words == "photos was drained already"
    await bench.act("drain", "cameras")
    assert (await bench.act("replan")).outcome is Outcome.REFUSED
    assert bench.planning.ask((), {}) is None
    await bench.act("undrain", "photos")
    assert not bench.router.refuses("photos")
    assert bench.tenants["photos"].planned


async def test_what_waits_is_answered_before_it_is_planned_without(bench: Bench) -> None:
    worker = StandInWorker("w")
    worker.held.clear()
    bench.router.attach("photos", worker, worker.latency_s)
    asking = asyncio.create_task(infer(bench.router, "photos", np.zeros((1, 3), np.uint8)))
    await worker.begun.wait()
    draining = asyncio.create_task(bench.act("drain", "photos"))
    await until_async(lambda: bench.router.refuses("photos"))
    assert not bench.tenants["photos"].drained
    worker.held.set()
    assert (await draining).outcome is Outcome.DONE
    assert asking.done()


async def test_an_unexpected_error_is_recorded_too(bench: Bench) -> None:
    del bench.router.counts["photos"]
    acted = await bench.act("drain", "photos")
    assert acted.outcome is Outcome.FAILED
    assert "KeyError" in acted.words
    assert [action.outcome for action in bench.recorder.actions] == [Outcome.FAILED]


@pytest.mark.parametrize("kind", ["drain", "undrain", "roll-back", "retrain"])
async def test_a_tenant_that_is_being_removed_or_is_gone_is_left_alone(
    kind: str, bench: Bench
) -> None:
    bench.context.leaving["photos"] = True
    bench.tenants["photos"].drain()
    del bench.tenants["cameras"]
    for name in ("photos", "cameras"):
        acted = await bench.act(kind, name)
        assert acted.outcome is Outcome.REFUSED
        assert f"{name} is being removed" in acted.words
    assert not bench.tenants["photos"].planned


async def test_an_action_that_cannot_be_stored_is_not_done(
    bench: Bench,
) -> None:
    folder = bench.context.serving.folder
    (folder / "drained.json").mkdir()
    acted = await bench.act("drain", "photos")
    assert acted.outcome is Outcome.FAILED
    assert "drained.json" in acted.words
    assert not bench.router.refuses("photos")


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "drained": []}', '{"drained": [3]}'])
def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "drained.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="delete the file"):
        DrainedTenants(path)
