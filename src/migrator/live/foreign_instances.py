"""Instances on this GPU that MIGRator did not create. The planner gets the board without them."""

from __future__ import annotations

import logging

from migrator.control.controller import Controller
from migrator.control.events import Instruction
from migrator.core.errors import MigratorError
from migrator.core.placement import Place, board_without
from migrator.live.context import Context
from migrator.live.recording import Recorder

_log = logging.getLogger(__name__)


class ForeignInstances:
    """Keeps the planner's board up to date."""

    def __init__(self, context: Context, controller: Controller, recorder: Recorder) -> None:
        self._gpu_thread = context.resources.gpu_thread
        self._board = context.serving.live.scenario.board
        self._controller, self._recorder = controller, recorder
        self._known: tuple[Place, ...] = ()

    async def update(self) -> list[Instruction]:
        """Look at the GPU; if foreign instances were created or destroyed, replan around them.

        Before the first plan, divide the rest of the board again. Returns the instructions.
        """
        try:
            found = await self._gpu_thread.foreign_instances()
            board = board_without(self._board, found)
        except MigratorError as error:
            _log.warning("foreign instances on the GPU cannot be listed: %s", error)
            return []
        if found == self._known:
            return []
        self._known, self._controller.planning.board = found, board
        words = f"foreign instances on the GPU: {', '.join(map(str, found)) or 'none'}"
        self._recorder.event("board", words)
        if not self._controller.started:
            return self._controller.split_evenly()
        self._controller.planning.changed(words)
        return []
