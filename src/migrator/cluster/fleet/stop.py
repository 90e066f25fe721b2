"""Stopping a cluster: the head ends first, then its agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from migrator.cluster.fleet.agent import STOP_S
from migrator.cluster.fleet.gpu_daemon import LEASE_S
from migrator.cluster.fleet.ray_clusters import (
    HEAD,
    NAMESPACE,
    actor_names,
    agent_prefix,
)

HEAD_S = 60.0
_ANSWER_S = 5.0


@dataclass(frozen=True)
class StopResult:
    """Result of stopping a cluster."""

    led: bool
    """Whether the head responded; without it, GPUs whose agents are gone are unknown."""
    silent: tuple[str, ...]
    """GPUs that did not confirm that they are drained."""

    @property
    def clean(self) -> bool:
        return self.led and not self.silent

    @property
    def message(self) -> str:
        if self.clean:
            return "every GPU is drained"
        silent = ", ".join((*(() if self.led else ("its head",)), *self.silent))
        return (
            f"{silent} did not answer; every other agent has drained its GPU, and a daemon that is "
            f"left ends by itself within {LEASE_S:g} s of its agent's end"
        )


def stop_cluster(ray: Any, name: str) -> StopResult:
    """Stop the cluster; return when it has no actors left. Failures of actors are not raised."""
    head = _actor(ray, HEAD.format(name=name))
    unstopped = None
    if head is not None:
        unstopped = _result(ray, head.stop.remote(), HEAD_S)
        ray.kill(head)
    prefix = agent_prefix(name)
    names = [name for name in actor_names(ray) if name.startswith(prefix)]
    agents = {name: actor for name in names if (actor := _actor(ray, name)) is not None}
    stopping = {}
    for actor_name, agent in agents.items():
        report = _result(ray, agent.report.remote(0), _ANSWER_S)
        if report is not None:  # else it does not respond
            stopping[actor_name] = agent.stop.remote(report.epoch + 1)
    if stopping:
        waiting = list(stopping.values())
        ray.wait(waiting, num_returns=len(waiting), timeout=STOP_S + _ANSWER_S)
    answers = {agent: _result(ray, answer, 0) for agent, answer in stopping.items()}
    done = [agent for agent, answer in answers.items() if answer is not None and answer.done]
    for agent in agents.values():
        ray.kill(agent)
    silent = [agent.removeprefix(prefix) for agent in agents if agent not in done]
    return StopResult(unstopped is not None, tuple(dict.fromkeys((*(unstopped or ()), *silent))))


def _result(ray: Any, reference: Any, timeout_s: float) -> Any:
    """The result of a call; None if the actor is gone or does not respond."""
    try:
        return ray.get(reference, timeout=timeout_s)
    except Exception:  # any Ray error for an actor that is gone
        return None


def _actor(ray: Any, name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None
