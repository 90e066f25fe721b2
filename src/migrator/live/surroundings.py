"""What others have on the GPU: looked at now and then, and planned around while it is there."""

from __future__ import annotations

import logging
from collections.abc import Callable

from migrator.core.catalogue import Board
from migrator.core.errors import MigratorError
from migrator.gpu.driver import Place
from migrator.live.gpu_lane import GpuLane
from migrator.live.recorder import Recorder
from migrator.live.room import board_beside
from migrator.live.thinking import Thinking

_log = logging.getLogger(__name__)


class Surroundings:
    """The board as far as it is ours to divide."""

    def __init__(
        self,
        lane: GpuLane,
        board: Board,
        thinking: Thinking,
        recorder: Recorder,
        changed: Callable[[str], None],
    ) -> None:
        """`changed`: given in words what others hold now, where that is something else."""
        self._lane, self._board, self._thinking = lane, board, thinking
        self._recorder, self._changed = recorder, changed
        self._others: tuple[Place, ...] = ()

    async def look(self) -> None:
        """Plan around what others have by now; where nobody can tell, all is as it was."""
        try:
            others = await self._lane.others()
            beside = board_beside(self._board, others)
        except MigratorError as error:
            _log.warning("nobody could tell what else is on the GPU: %s", error)
            return
        if others == self._others:
            return
        self._others, self._thinking.board = others, beside
        words = f"others hold {', '.join(map(str, others)) or 'nothing any more'}"
        self._recorder.event("board", f"{words} on the GPU, which is planned around")
        self._changed(words)
