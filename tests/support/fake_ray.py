"""Ray as far as actors by name need it; a method's result is computed when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from migrator.cluster.fleet.ray_clusters import NAMESPACE


class FakeRay:
    """Named actors, those of another namespace beside them, and which were killed."""

    def __init__(self, actors: dict[str, Any], *, answers: bool = True) -> None:
        self.actors, self._answers = actors, answers
        self.killed: list[Any] = []
        self.util = SimpleNamespace(list_named_actors=self._list)

    def _list(self, **_: object) -> list[dict[str, str]]:
        if not self._answers:
            raise ConnectionError("Ray is busy")
        names = [name for name, actor in self.actors.items() if actor not in self.killed]
        others = [{"name": "head of x", "namespace": "another"}]
        return [*({"name": name, "namespace": NAMESPACE} for name in names), *others]

    def get_actor(self, name: str, namespace: str) -> Any:
        assert namespace == NAMESPACE
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def get(self, result: Callable[[], Any], timeout: float) -> Any:
        del timeout
        return result()

    def wait(self, results: list[Any], num_returns: int, timeout: float) -> None:
        assert num_returns == len(results)
        del timeout

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)
