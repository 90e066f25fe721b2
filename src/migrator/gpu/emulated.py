"""MIG without a GPU: the embedded default, for trying out, for tests, for machines without one."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.driver import Gpu, GpuInstance, Place
from migrator.gpu.names import Driver
from migrator.gpu.virtual_board import VirtualBoard, left_half_made
from migrator.gpu.virtual_state import StateFile

DEFAULT_BOARD = "A100-40GB"
CREATE_S, DESTROY_S = (0.16, 0.24), (0.20, 0.26)
"""As published for an A100, GPU and compute instance together."""


class EmulatedDriver:
    """A virtual board that takes as long as a real one."""

    name = Driver.EMULATED.value

    def __init__(
        self,
        state: Path,
        index: int = 0,
        board: Board | None = None,
        *,
        pace: float = 1.0,
        boot: str | None = None,
    ) -> None:
        """`board`: by default the one it was last time; `pace`: factor on the waits, 0 for none."""
        path = state / "emulated" / f"gpu-{index}.json"
        board = board or _remembered(path)
        uuid = f"GPU-{uuid5(NAMESPACE_URL, f'emulated/{board.name}/{index}')}"
        self._virtual = VirtualBoard(path, board, uuid, boot=boot)
        self._gpu = Gpu(
            index=index,
            uuid=uuid,
            name=f"Emulated {board.name}",
            board=board,
            boot_id=self._virtual.boot_id,
            driver_version="emulated",
            divides=True,
            driver=self.name,
        )
        self._pace = pace

    def gpu(self) -> Gpu:
        """The emulated GPU."""
        return self._gpu

    def instances(self) -> tuple[GpuInstance, ...]:
        """Every instance on the board."""
        return self._virtual.instances()

    def create(self, place: Place) -> GpuInstance:
        """GPU and compute instance; an interruption leaves neither."""
        half = self._virtual.create_gpu_instance(place)
        try:
            self._wait(CREATE_S)
            return self._virtual.create_compute_instance(half)
        except BaseException as error:
            try:
                self._virtual.destroy_compute_instance(half)
                self._virtual.destroy_gpu_instance(half)
            except MigratorError as second:
                raise left_half_made(half, second) from error
            raise

    def destroy(self, instance: GpuInstance) -> None:
        """Compute instance, then GPU instance."""
        self._virtual.destroy_compute_instance(instance)
        self._wait(DESTROY_S)
        self._virtual.destroy_gpu_instance(instance)

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Which instance it is, for `held`; a GPU that may be there is not for it."""
        return {**self._virtual.known(instance), "CUDA_VISIBLE_DEVICES": ""}

    def _wait(self, between_s: tuple[float, float]) -> None:
        time.sleep(self._pace * random.uniform(*between_s))


def _remembered(path: Path) -> Board:
    state = StateFile(path).read()
    name = state.board if state else DEFAULT_BOARD
    if name not in catalogue.boards():
        raise InputError(f"{path}: is of a {name}, which is not known; remove it to start anew")
    return catalogue.board(name)
