"""Observations for tests of MIG policies that say only what matters to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from migrator.core.catalogue import board as board_called
from migrator.core.problem import Instance, Kind
from migrator.core.profiles import Curve, Overhead, Profile, Service
from migrator.policies.policy import Observation, RetrainingState, TenantView
from support.make import instances

RPS = {14: 10.0, 28: 18.0, 42: 25.0, 56: 31.0, 98: 45.0}
"""SMs of an A100's sizes (1g, 2g, 3g, 4g, 7g) -> requests per second, one at a time."""
TRAINING_S = {14: 70.0, 28: 40.0, 42: 30.0, 56: 20.0, 98: 10.0}
"""SMs -> seconds of a retraining."""


def curve(values: dict[int, float]) -> Curve:
    return Curve(tuple((float(sms), value) for sms, value in values.items()))


def profile(latency_ms: dict[int, Curve]) -> Profile:
    return Profile(
        "hand-made", "A100-40GB", latency_ms, 3.0, 0.1, 0.5, Overhead(0.2, 0.5, 0.3), "tests"
    )


def service(name: str, *, slo_s: float = 1.0, min_gpcs: int = 1) -> Service:
    """One request at a time, at the rates of `RPS`."""
    latency_ms = {1: curve({sms: 1e3 / rps for sms, rps in RPS.items()})}
    return Service(name, profile(latency_ms), slo_s, 1, min_gpcs)


def waiting(factor: float = 1.0, *, accuracy_post: float = 0.9) -> RetrainingState:
    """A retraining that takes `factor` times what `TRAINING_S` says and has not begun."""
    return RetrainingState(0.5, accuracy_post, curve(TRAINING_S).scaled(factor), 0.0, None)


def running(on: str, done: float, factor: float = 1.0) -> RetrainingState:
    """The same, under way on an instance written as `instances` reads it."""
    seconds = curve(TRAINING_S).scaled(factor)
    return RetrainingState(0.5, 0.9, seconds, done, instances(on)[0])


def view(
    served: str | Service,
    *,
    history: Sequence[float] = (),
    ahead: Sequence[Sequence[float]] | None = None,
    retraining: RetrainingState | None = None,
    overhead_s: float = 1.0,
) -> TenantView:
    """A tenant with accuracy 0.5; a name alone is served by `service`."""
    return TenantView(
        service=service(served) if isinstance(served, str) else served,
        history=np.array(history, np.float64),
        ahead=None if ahead is None else np.array(ahead, np.float64),
        retraining=retraining,
        overhead_s=overhead_s,
        accuracy=0.5,
    )


def observation(
    *tenants: TenantView,
    board: str = "A100-40GB",
    slot_s: float = 1.0,
    slots: int = 100,
    slot: int = 0,
    held: str = "",
) -> Observation:
    """What is seen in slot `slot` of a window."""
    return Observation(board_called(board), slot_s, slots, slot, tenants, instances(held))


def written(held: Sequence[object]) -> str:
    """The reverse, in the order of starts."""
    instances_held = [holding for holding in held if isinstance(holding, Instance)]
    assert len(instances_held) == len(held)
    return " ".join(map(_written, sorted(instances_held, key=lambda instance: instance.start)))


def sizes(held: Sequence[object]) -> list[str]:
    """The same without starts, sorted: "1g:a*"."""
    return sorted(f"{word[:2]}{word[word.index(':') :]}" for word in written(held).split())


def _written(instance: Instance) -> str:
    assert instance.task is not None
    star = "*" if instance.task.kind is Kind.RETRAINING else ""
    return f"{instance}:{instance.task.tenant}{star}"
