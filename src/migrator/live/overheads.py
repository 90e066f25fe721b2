"""What a new instance takes until it serves, per tenant: assumed by profiles, then measured."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping

from migrator.control.events import Ready
from migrator.control.executor import Executor
from migrator.core.share import bare
from migrator.live.decisions import Decisions
from migrator.live.hands import Hands
from migrator.live.recorder import Recorder
from migrator.live.tenant_run import TenantRun
from migrator.live.window_clock import WindowClock
from migrator.workload.live import LiveTenant

_FOLLOWED = 0.5
"""How fast measured overheads replace what was known before."""
_LONGEST = 0.5
"""Of a window: a measured overhead counts as no longer."""


def assumed_s(tenants: Iterable[LiveTenant]) -> dict[str, float]:
    """As their profiles say, with workers that wait ready."""
    return {
        each.name: each.service.profile.overhead.total_s(mig=True, prepared=True)
        for each in tenants
    }


class Overheads:
    """Learns from every instance that comes to serve."""

    def __init__(
        self,
        known_s: MutableMapping[str, float],
        tenants: MutableMapping[str, TenantRun],
        clock: WindowClock,
        executor: Executor,
        hands: Hands,
        recorder: Recorder,
        decisions: Decisions,
    ) -> None:
        """`known_s`: by tenant, looked at by executor and policy."""
        self._known_s, self._tenants, self._clock = known_s, tenants, clock
        self._executor, self._hands = executor, hands
        self._recorder, self._decisions = recorder, decisions

    def measure(self, event: Ready) -> None:
        """An instance serves: what it took replaces half of what was known."""
        place = bare(event.instance)
        overhead = self._hands.overheads.get(place)
        if overhead is None:
            return
        name, parts = overhead.tenant, overhead.parts_s
        # what had to go before it counts too, where it could not be prepared ahead
        late_s = self._executor.late_s(self._clock.now_s(), event.instance)
        took_s = max(late_s, parts["create_s"] + parts["warm_s"])
        # beyond that nothing new would be planned, and so nothing measured again
        took_s = min(took_s, _LONGEST * self._clock.window_s)
        self._known_s[name] += _FOLLOWED * (took_s - self._known_s[name])
        self._tenants[name].overhead_s = self._known_s[name]
        self._recorder.units(self._executor.units)
        self._recorder.overhead(place, parts)
        self._decisions.measured(name, parts, late_s)
