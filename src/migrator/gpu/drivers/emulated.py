"""The emulated driver: MIG without a GPU, for trials, tests and machines that have none."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers.base import DriverKind, Gpu, GpuInstance
from migrator.gpu.drivers.virtual_board import BoardFile, VirtualBoard

DEFAULT_BOARD = "A100-40GB"
CREATE_S, DESTROY_S = (0.16, 0.24), (0.20, 0.26)
"""Range of seconds to create or destroy an instance.

Published for an A100, the GPU instance and its compute instance together.
"""


class EmulatedDriver:
    """A virtual board on which operations take as long as on a real GPU."""

    name = DriverKind.EMULATED.value

    def __init__(
        self,
        state: Path,
        index: int = 0,
        board: Board | None = None,
        *,
        pace: float = 1.0,
        boot: str | None = None,
    ) -> None:
        """`board` defaults to the previous run's. `pace` scales the delays; 0 disables them."""
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
        """All instances on the board."""
        return self._virtual.instances()

    def create(self, place: Place) -> GpuInstance:
        """Create a GPU instance with its compute instance. An interruption leaves neither."""
        return self._virtual.create(
            place, meanwhile=lambda: self._wait(CREATE_S), remove=self._remove
        )

    def destroy(self, instance: GpuInstance) -> None:
        """Destroy the compute instance, then the GPU instance."""
        self._remove(instance, wait=True)

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """Environment variables for `register_use`. They hide a real GPU from the worker."""
        return {**self._virtual.environment(instance), "CUDA_VISIBLE_DEVICES": ""}

    def _remove(self, instance: GpuInstance, *, wait: bool = False) -> None:
        self._virtual.destroy_compute_instance(instance)
        if wait:
            self._wait(DESTROY_S)
        self._virtual.destroy_gpu_instance(instance)

    def _wait(self, between_s: tuple[float, float]) -> None:
        time.sleep(self._pace * random.uniform(*between_s))


def _remembered(path: Path) -> Board:
    state = BoardFile(path).read()
    name = state.board if state else DEFAULT_BOARD
    if name not in catalogue.boards():
        raise InputError(f"{path}: is of a {name}, which is unknown; remove it to start anew")
    return catalogue.board(name)
