"""What Prometheus is told of the runtime beside the router's counters, reckoned when it asks.

docs/observability.md has every name; a test keeps it so.
"""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import migrator
from migrator.control.units import State, Unit
from migrator.core.action import ActionKind, Outcome
from migrator.core.instance import Instance
from migrator.core.share import Share
from migrator.gpu.driver import Place
from migrator.live.change_metrics import ChangeMetrics
from migrator.live.tenant_metrics import TenantMetrics
from migrator.live.watched import Watched
from migrator.serve.families import counter, gauge, info

_FILES = ("journal.db", "labels.db", "records.db")


def collectors(watched: Watched) -> tuple[Collector, ...]:
    """All of them, and what the process itself takes."""
    of_process = ProcessCollector(registry=None)
    return (RunMetrics(watched), TenantMetrics(watched), ChangeMetrics(watched), of_process)


class RunMetrics(Collector):
    """The run itself: what it is, where it stands, what the GPU is divided into."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._profiles = {
            gpcs: each.name for gpcs, each in watched.gpu.board.plain_profiles.items()
        }

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from (self._build(), self._run())
        yield from self._time()
        yield from (self._instances(), self._instance())
        yield from self._disk()
        yield self._actions()

    def _build(self) -> Metric:
        versions = {"version": migrator.__version__, "python": platform.python_version()}
        return info("migrator_build", "Which MIGRator this is.", [versions])

    def _run(self) -> Metric:
        return info(
            "migrator_run",
            "What is served: scenario, policy, forecaster, driver and board.",
            [self._watched.about],
        )

    def _time(self) -> Iterator[Metric]:
        clock = self._watched.clock
        yield gauge(
            "migrator_window", "Number of the window that runs now.", [], {(): clock.number}
        )
        yield gauge("migrator_slot", "Slot of the window, from 0.", [], {(): clock.slot})
        yield gauge("migrator_slots", "Slots of a window.", [], {(): clock.slots})
        yield gauge("migrator_window_seconds", "Length of a window.", [], {(): clock.window_s})
        yield gauge(
            "migrator_paused",
            "1 while an operator has paused reconfiguration, else 0.",
            [],
            {(): self._watched.executor.paused},
        )

    def _instances(self) -> Metric:
        units = self._watched.executor.units
        found = Counter((str(each.state), self._profile(each)) for each in units)
        profiles = list(self._profiles.values())
        if any(isinstance(each.instance, Share) for each in units):
            profiles.append("")
        return gauge(
            "migrator_instances",
            "Instances by state and MIG profile; MPS shares have an empty profile.",
            ["state", "GPU_I_PROFILE"],
            {(state, each): found[state, each] for state in State for each in profiles},
        )

    def _instance(self) -> Metric:
        return info(
            "migrator_instance",
            "Every instance and share that exists; gpu, UUID (of the GPU), GPU_I_ID and "
            "GPU_I_PROFILE are those of dcgm-exporter.",
            map(self._described, self._watched.executor.units),
        )

    def _described(self, unit: Unit) -> Mapping[str, str]:
        gpu, holding = self._watched.gpu, unit.instance
        share = f"{holding.percent:g}%" if isinstance(holding, Share) else ""
        named = f"{unit.site}#{holding.number}" if isinstance(holding, Share) else str(unit.site)
        return {
            "unit": named,
            "gpu": str(gpu.index),
            "UUID": gpu.uuid,
            "GPU_I_ID": self._number(unit),
            "GPU_I_PROFILE": self._profile(unit),
            "share": share,
            "state": unit.state,
            "tenant": unit.task.tenant if unit.task else "",
            "task": unit.task.kind if unit.task else "",
        }

    def _profile(self, unit: Unit) -> str:
        holding = unit.instance
        return self._profiles[holding.gpcs] if isinstance(holding, Instance) else ""

    def _number(self, unit: Unit) -> str:
        holding = unit.instance
        if not isinstance(holding, Instance):
            return ""
        place = Place(holding.start, self._profiles[holding.gpcs])
        return str(self._watched.numbers.get(place, ""))

    def _disk(self) -> Iterator[Metric]:
        values: dict[tuple[str, ...], float] = {}
        try:
            usage = shutil.disk_usage(self._watched.folder)
            values = {("free",): usage.free, ("total",): usage.total}
        except OSError:
            pass  # the folder is gone; the alert on a missing value says so
        yield gauge(
            "migrator_state_disk_bytes",
            "The file system that models, labels and records are written to.",
            ["kind"],
            values,
        )
        yield counter(
            "migrator_record_failures",
            "Times that records could not be written; service goes on, reports have a gap.",
            [],
            {(): self._watched.tallies.unwritten},
        )
        damaged = self._watched.tallies.damaged
        yield counter(
            "migrator_damaged_files",
            "Files that could not be read when the daemon started: set aside, and begun anew.",
            ["file"],
            {(each,): damaged[each] for each in (*_FILES, *(damaged.keys() - _FILES))},
        )

    def _actions(self) -> Metric:
        return counter(
            "migrator_actions",
            "What operators did to the running system, by outcome: done, refused or failed.",
            ["kind", "outcome"],
            {
                (str(kind), str(outcome)): self._watched.tallies.actions[kind, outcome]
                for kind in ActionKind
                for outcome in Outcome
            },
        )
