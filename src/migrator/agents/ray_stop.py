"""A cluster that is left running is ended: daemons drained, no actor left, whatever of it lives.

Where the head is gone or hangs, its agents are told directly; where an agent is gone too, its
daemon ends by itself as nobody renews its lease.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from migrator.agents.agent import STOP_S
from migrator.agents.ray_connection import HEAD, NAMESPACE, actors, agents_of

HEAD_S = 60.0
_ANSWER_S = 5.0


def end_cluster(ray: Any, name: str) -> None:
    """Returns when nothing of it is left; InputError and the like are never raised."""
    _end_head(ray, name)
    left = [each for each in actors(ray) if each.startswith(agents_of(name))]
    agents = [found for each in left if (found := _actor(ray, each)) is not None]
    asked = [_stop(ray, each) for each in agents]
    waiting = [each for each in asked if each is not None]
    if waiting:
        ray.wait(waiting, num_returns=len(waiting), timeout=STOP_S + _ANSWER_S)
    for each in agents:
        ray.kill(each)


def _end_head(ray: Any, name: str) -> None:
    head = _actor(ray, HEAD.format(name=name))
    if head is None:
        return
    with suppress(Exception):  # whatever Ray has for a head that is gone
        ray.get(head.stop.remote(), timeout=HEAD_S)
    ray.kill(head)


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
