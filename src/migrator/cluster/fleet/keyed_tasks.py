"""Background tasks by name: one per name at a time, failed ones are repeated later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from migrator.cluster.fleet.messages import DeposedError
from migrator.core.errors import MigratorError

AGAIN_S = 2.0
"""Seconds before a failed task is retried."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


class KeyedTasks:
    """Background tasks, at most one per key; the key is usually the tenant."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._busy: dict[str, asyncio.Task[Any]] = {}
        self._not_before: dict[str, float] = {}
        self.deposed: DeposedError | None = None
        """Set when a task finds that a newer head leads."""

    @property
    def busy(self) -> bool:
        return bool(self._busy)

    def may_start(self, name: str) -> bool:
        """Whether a task may be started under that key now."""
        return name not in self._busy and self._not_before.get(name, 0.0) <= self._clock()

    def delay(self, name: str, after_s: float | None = None) -> None:
        """Do not start a task of that key before `after_s` seconds have passed."""
        self._not_before[name] = self._clock() + (AGAIN_S if after_s is None else after_s)

    def retry_all(self) -> None:
        """Drop all delays: failed tasks may succeed now."""
        self._not_before.clear()

    def start(self, name: str, doing: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the background, unless a task of that key runs."""
        if name in self._busy:
            doing.close()
        else:
            self._busy[name] = asyncio.create_task(self._done(name, doing))

    async def run(self, name: str, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; MigratorError if a task of that key runs."""
        if name in self._busy:
            doing.close()
            raise MigratorError(f"{name} is on its way already; try again in some seconds")
        self._busy[name] = task = asyncio.create_task(doing)
        try:
            return await asyncio.shield(task)
        finally:
            # cancelling the caller does not cancel the task
            task.add_done_callback(lambda _: self._busy.pop(name, None))

    async def _done(self, name: str, doing: Coroutine[Any, Any, object]) -> None:
        try:
            await doing
        except DeposedError as error:
            self.deposed = error
        except MigratorError as error:
            _log.warning("%s: %s", name, error)
        except Exception:
            _log.exception("%s failed: unexpected error", name)
        finally:
            self._busy.pop(name, None)
