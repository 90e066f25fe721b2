"""Seconds until a new instance serves, per tenant: first from profiles, then measured."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.control.controller import Controller
from migrator.control.events import Ready
from migrator.core.share import bare
from migrator.live.actuator import Actuator
from migrator.live.decisions import Decisions
from migrator.live.recording import Recorder
from migrator.workload.live import LiveTenant


def assumed_s(tenants: Iterable[LiveTenant]) -> dict[str, float]:
    """The overheads by profile, with prepared workers."""
    return {
        each.name: each.service.profile.overhead.total_s(mig=True, prepared=True)
        for each in tenants
    }


class Overheads:
    """Learns from every instance that begins to serve."""

    def __init__(
        self,
        controller: Controller,
        actuator: Actuator,
        recorder: Recorder,
        decisions: Decisions,
    ) -> None:
        self._controller, self._actuator = controller, actuator
        self._recorder, self._decisions = recorder, decisions

    def measure(self, event: Ready) -> None:
        """Report to the controller how long an instance took until it served."""
        place = bare(event.instance)
        overhead = self._actuator.overheads.get(place)
        if overhead is None:
            return
        name, parts = overhead.tenant, overhead.parts_s
        took_s = parts["create_s"] + parts["warm_s"]
        late_s = self._controller.measured(name, event.instance, took_s)
        self._recorder.units(self._controller.executor.units)
        self._recorder.overhead(place, parts)
        self._decisions.measured(name, parts, late_s)
