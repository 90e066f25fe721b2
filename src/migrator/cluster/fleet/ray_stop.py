"""A cluster that is left running is ended: daemons drained, no actor left, whatever of it lives.

Where the head is gone or hangs, its agents are told directly; where an agent is gone too, its
daemon ends by itself as nobody renews its lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from migrator.cluster.fleet.agent import STOP_S
from migrator.cluster.fleet.gpu_daemon import LEASE_S
from migrator.cluster.fleet.ray_connection import HEAD, NAMESPACE, actors, agents_of

HEAD_S = 60.0
_ANSWER_S = 5.0


@dataclass(frozen=True)
class Ending:
    """How a cluster ended."""

    led: bool
    """Whether its head was there: else nobody knows of GPUs whose agents are gone."""
    silent: tuple[str, ...]
    """GPUs of which nobody said that they are drained."""

    @property
    def words(self) -> str:
        """What is true of its GPUs."""
        if self.led and not self.silent:
            return "every GPU is drained"
        who = ", ".join((*(() if self.led else ("its head",)), *self.silent))
        return (
            f"{who} did not answer; every other agent has drained its GPU, and a daemon that is "
            f"left ends by itself within {LEASE_S:g} s of its agent's end"
        )


def end_cluster(ray: Any, name: str) -> Ending:
    """Returns when no actor of it is left; InputError and the like are never raised."""
    told = _end_head(ray, name)
    prefix = agents_of(name)
    names = [each for each in actors(ray) if each.startswith(prefix)]
    agents = {each: found for each in names if (found := _actor(ray, each)) is not None}
    asked = {each: _stop(ray, agent) for each, agent in agents.items()}
    waiting = [each for each in asked.values() if each is not None]
    if waiting:
        ray.wait(waiting, num_returns=len(waiting), timeout=STOP_S + _ANSWER_S)
    silent = [each.removeprefix(prefix) for each, at in asked.items() if not _stopped(ray, at)]
    for each in agents.values():
        ray.kill(each)
    return Ending(told is not None, tuple(dict.fromkeys((*(told or ()), *silent))))


def _end_head(ray: Any, name: str) -> tuple[str, ...] | None:
    """The GPUs that it could not end; None: it is gone or hangs."""
    head = _actor(ray, HEAD.format(name=name))
    if head is None:
        return None
    try:
        told: tuple[str, ...] | None = ray.get(head.stop.remote(), timeout=HEAD_S)
    except Exception:  # whatever Ray has for a head that is gone
        told = None
    ray.kill(head)
    return told


def _stopped(ray: Any, reference: Any) -> bool:
    """Whether an agent that was asked to has said that its daemon ended."""
    try:
        return reference is not None and bool(ray.get(reference, timeout=0).done)
    except Exception:  # it does not answer, or has gone meanwhile
        return False


def _stop(ray: Any, agent: Any) -> Any:
    """Asked in the name of a head newer than any it has heard; None: it does not answer."""
    try:
        epoch = ray.get(agent.report.remote(0), timeout=_ANSWER_S).epoch
    except Exception:  # whatever Ray has for an agent that is gone
        return None
    return agent.stop.remote(epoch + 1)


def _actor(ray: Any, name: str) -> Any:
    """None: it has ended meanwhile."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None
