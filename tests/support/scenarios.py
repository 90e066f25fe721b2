"""Small scenarios, profiles and policies for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from migrator.core import catalogue
from migrator.core.problem import Holding, Instance, Kind, Share, Task
from migrator.core.profiles import Curve, Overhead, Profile, Service
from migrator.core.scenario import Drift, Scenario, ServedTenant, Trace
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight

H200 = catalogue.board("H200-141GB")


def profile(
    ms: float = 10.0, *, interference: float = 0.0, contention: float = 0.0, load_s: float = 1.0
) -> Profile:
    """A model that takes `ms` per request on 16 SMs, half on twice as many, linear in the batch."""
    curve = Curve(((16, ms), (128, ms / 8)))
    return Profile(
        "toy",
        H200.name,
        {1: curve, 4: curve.scaled(4.0)},
        4.0,
        interference,
        contention,
        Overhead(0.5, 8.0, load_s),
        "made up for tests",
    )


def drift(pre: float = 0.5, post: float = 0.9, seconds: float = 40.0) -> Drift:
    """A retraining that takes `seconds` on 16 SMs, half of it on twice as many."""
    return Drift(pre, post, Curve(((16, seconds), (128, seconds / 8))))


def tenant(
    name: str,
    counts: list[int],
    *,
    drifts: tuple[Drift, ...] = (),
    slo_s: float = 0.1,
    batch: int = 1,
    offset_s: int = 0,
    model: Profile | None = None,
) -> ServedTenant:
    """A tenant with `counts` requests per second."""
    service = Service(name, model or profile(), slo_s, batch)
    return ServedTenant(service, Trace(name, np.array(counts, dtype=np.int64)), offset_s, drifts)


def scenario(
    *tenants: ServedTenant, window_s: float = 10.0, slot_s: float = 1.0, windows: int = 1
) -> Scenario:
    """A run of these tenants on an H200 with prepared workers."""
    return Scenario(
        "test", H200, window_s, slot_s, windows, tenants, "fixed", "flat", seed=0, prepared=True
    )


def serves(tenant: str, start: int, gpcs: int) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.INFERENCE))


def trains(tenant: str, start: int, gpcs: int) -> Instance:
    return Instance(start, gpcs, Task(tenant, Kind.RETRAINING))


def share(tenant: str, percent: float, kind: Kind = Kind.INFERENCE, number: int = 0) -> Share:
    return Share(number, percent, Task(tenant, kind))


class Fixed:
    """A policy that asks for the same slots in every window and remembers what it saw."""

    name = "fixed"
    summary = "always the same"
    sight = Sight.TRUTH
    on_completion = False
    estimates = True

    def __init__(
        self,
        *slots: tuple[Holding, ...],
        sharing: Sharing = Sharing.MIG,
        routing: Routing = Routing.EARLIEST,
        every_s: float | None = None,
    ) -> None:
        self.slots, self.sharing, self.routing, self.every_s = slots, sharing, routing, every_s
        self.seen: list[Observation] = []

    def decide(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        return Decision(self.slots)


class Reacting(Fixed):
    """A policy made of a function, asked again when a retraining ends."""

    on_completion = True

    def __init__(
        self, answer: Callable[[Observation], Decision], sharing: Sharing = Sharing.MIG
    ) -> None:
        super().__init__((), sharing=sharing)
        self.answer = answer

    def decide(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        return self.answer(observation)


class Flat:
    """A forecaster that expects one request in every slot."""

    name = "flat"
    summary = "one request per slot"

    def ahead(
        self, history: NDArray[np.float64], slots: int, window_slots: int
    ) -> NDArray[np.float64]:
        assert history.ndim == 1
        assert slots <= window_slots
        return np.ones((1, slots))
