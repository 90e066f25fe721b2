"""The state of a daemon that does not run, for tests of single services."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

from migrator.control.controller import Controller
from migrator.control.events import Instruction
from migrator.control.retraining_plans import RetrainingPlans
from migrator.control.tenant_state import TenantState, tenant_state_of
from migrator.core.catalogue import Place
from migrator.gpu.drivers.registry import open_driver
from migrator.live.actuation import Actuation
from migrator.live.context import Context, new_tenants
from migrator.live.labels import LabelCounts
from migrator.live.learning import Learning
from migrator.live.operator_actions import OperatorActions
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.live.rollout import Rollout
from migrator.live.training import Trainings
from migrator.live.versions import Version
from migrator.records.store import Records
from migrator.serving.workers.forkserver import Forkserver
from migrator.serving.workers.pool import Workers
from migrator.workload.live import read_live
from support.live_daemon import scenario_file


class LabelTable:
    """Counts of labels by tenant and window, set by the test."""

    def __init__(self, path: Path) -> None:
        self.path, self.last_window, self.damaged = path, -1, None
        self.set: dict[tuple[str, int], LabelCounts] = {}

    def counts(self, tenant: str, window: int) -> LabelCounts:
        return self.set.get((tenant, window), LabelCounts())

    def accuracy(self, tenant: str, window: int, fewest: int = 1) -> float | None:
        return self.counts(tenant, window).accuracy(fewest)


class NoActuation(Actuation):
    """Instructions that are not carried out."""

    def __init__(self) -> None:
        self.given: list[Instruction] = []

    def do(self, instructions: Iterable[Instruction]) -> None:
        self.given += instructions


class NoRollout(Rollout):
    """Versions that reach no worker and no store."""

    def __init__(self) -> None:
        self.versions: list[tuple[str, int]] = []
        self.claimed: list[str] = []

    async def roll_out(self, version: Version) -> None:
        self.versions.append((version.tenant, version.number))

    async def share(self, tenant: str, *, claim: bool = False) -> bool:
        if claim:
            self.claimed.append(tenant)
        return True


def operator_actions(
    context: Context, controller: Controller, learning: Learning, recorder: LiveRecorder
) -> tuple[OperatorActions, NoActuation]:
    """The actions of a daemon, whose instructions are not carried out."""
    actuation = NoActuation()
    retrainings = RetrainingPlans(
        context.tenants, context.clock, context.labels, controller, on_instances=False
    )
    actions = OperatorActions(context, controller, actuation, learning, retrainings, recorder)
    return actions, actuation


def idle_forkserver() -> Forkserver:
    """A forkserver that does not run."""
    return Forkserver(Path("unused"), {}, answer_s=1.0)


def idle_context(serving: DaemonOptions, **replaced: Any) -> Context:
    """A context without processes: GPU 0 of the emulated driver, workers and records are mocks."""
    serving.folder.mkdir(parents=True, exist_ok=True)
    with open_driver("emulated", 0, state=serving.state, board="A100-40GB") as driver:
        gpu = driver.gpu()
    resources: dict[str, Any] = {
        "gpu": gpu,
        "gpu_thread": SimpleNamespace(numbers={Place(0, "4g.20gb"): 1}),
        "labels": LabelTable(serving.folder / "labels.db"),
        "records": create_autospec(Records, instance=True),
        "workers": create_autospec(Workers, instance=True, forkserver=idle_forkserver()),
        "trainings": Trainings(serving.folder / "trainings.log", idle_forkserver()),
    }
    return Context(serving, **(resources | replaced), tenants=new_tenants(serving))


def tenant_in(folder: Path, window_s: int) -> TenantState:
    """The tenant photos of a scenario that is written to the folder."""
    live = read_live(scenario_file(folder, "photos", window_s=window_s))
    (served,), (tenant,) = live.scenario.tenants, live.tenants
    return tenant_state_of(served, tenant, live.scenario.slot_s, 1.0)
