"""What the head does beside its beat: one thing at a time under every name, and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from migrator.cluster.fleet.links import DeposedError
from migrator.core.errors import MigratorError

AGAIN_S = 2.0
"""What went wrong is not tried again sooner."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Errands:
    """The errands of one head, mostly called after the tenant they are for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._busy: dict[str, asyncio.Task[Any]] = {}
        self._not_before: dict[str, float] = {}
        self.deposed: DeposedError | None = None
        """Set where one of them was told that a newer head leads."""

    @property
    def any(self) -> bool:
        """Whether something is being done."""
        return bool(self._busy)

    def may(self, name: str) -> bool:
        """Whether something may be begun for it now."""
        return name not in self._busy and self._not_before.get(name, 0.0) <= self._clock()

    def later(self, name: str, after_s: float | None = None) -> None:
        """It went wrong: not again at once."""
        self._not_before[name] = self._clock() + (AGAIN_S if after_s is None else after_s)

    def at_once(self) -> None:
        """Things have changed: whatever went wrong may work now."""
        self._not_before.clear()

    def begin(self, name: str, doing: Coroutine[Any, Any, object]) -> None:
        """Do it, unless something is done under that name already."""
        if name in self._busy:
            doing.close()
        else:
            self._busy[name] = asyncio.create_task(self._done(name, doing))

    async def alone(self, name: str, doing: Coroutine[Any, Any, T]) -> T:
        """The same for somebody who waits for it; MigratorError where it cannot be done now."""
        if name in self._busy:
            doing.close()
            raise MigratorError(f"{name} is on its way already; try again in some seconds")
        self._busy[name] = task = asyncio.create_task(doing)
        try:
            return await asyncio.shield(task)
        finally:
            # whoever asked may have gone, which does not end it
            task.add_done_callback(lambda _: self._busy.pop(name, None))

    async def _done(self, name: str, doing: Coroutine[Any, Any, object]) -> None:
        try:
            await doing
        except DeposedError as error:
            self.deposed = error
        except MigratorError as error:
            _log.warning("%s: %s", name, error)
        except Exception:
            _log.exception("%s failed in a way nobody thought of", name)
        finally:
            self._busy.pop(name, None)
