"""An event loop whose clock jumps to the next thing that happens: hours pass in moments."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Never waits; tells how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.passed_s += timeout or 0.0
        assert timeout is not None, "everybody waits for something that never comes"
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs as fast as it can; `time` is what would have passed."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Begins at 1000, so that nobody mistakes a duration for a moment."""
        return 1000.0 + self._jumping.passed_s


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
