"""The `mig` driver: a GPU divided by its own hardware, through NVML.

Only GPU and compute instances are created and destroyed here; MIG mode is switched by
`enable_mig` alone, which nothing calls unless the operator asks for it.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property

from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu import nvml as nvml_calls
from migrator.gpu.driver import (
    Gpu,
    GpuInstance,
    HalfMadeError,
    Holder,
    InUseError,
    NotPermittedError,
    Place,
    RefusedError,
    TransientError,
)
from migrator.gpu.layout import check_start, slices
from migrator.gpu.mig_board import MigBoard, read_board
from migrator.gpu.mig_instances import MigInstances, holder
from migrator.gpu.names import Driver
from migrator.gpu.nvml import GpuInstanceHandle, Nvml
from migrator.gpu.nvml_errors import RIGHTS, GoneError, LostError, UnsupportedError
from migrator.gpu.processes import boot_id

FAKE_NVML = "MIGRATOR_FAKE_NVML"
"""FOLDER, or FOLDER:BOARD,BOARD,...: the fake machine that is used instead of this one."""
PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Between attempts to remove a GPU instance that got no compute instance."""


class MigDriver:
    """One GPU and its MIG instances, whoever made them."""

    name = Driver.MIG.value

    def __init__(
        self,
        nvml: Nvml,
        index: int,
        *,
        boot_id: Callable[[], str] = boot_id,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._nvml = nvml
        self._index = index
        self._boot_id = boot_id
        self._pause = pause
        self._device = nvml.device(index)

    def gpu(self) -> Gpu:
        """The GPU, with its board as NVML tells it."""
        return Gpu(
            self._index,
            self._nvml.uuid(self._device),
            self._nvml.name(self._device),
            self._board.board,
            self._boot_id(),
            self._nvml.driver_version(),
            self._nvml.mig_mode(self._device)[0],
            self.name,
        )

    def instances(self) -> tuple[GpuInstance, ...]:
        """Every GPU instance, by start; without compute instance it has no UUID."""
        return self._instances.all()

    def create(self, place: Place) -> GpuInstance:
        """A GPU instance there and a compute instance that fills it, or neither."""
        check_start(self._board.board, place)
        if not self.mig_mode()[0]:
            raise InputError(self._mig_off())
        profile, size = self._board.profiles[place.profile], self._width(place)
        try:
            made = self._nvml.create_gpu_instance(self._device, profile.id, place.start, size)
        except RefusedError as error:
            raise RefusedError(
                f"GPU {self._index} has no room for {place}{self._in_the_way(place)}; "
                "destroy what is there or choose another place"
            ) from error
        except UnsupportedError as error:
            raise InputError(self._mig_off()) from error
        except (NotPermittedError, TransientError, LostError):
            raise
        except GpuError as error:
            raise RefusedError(str(error)) from error  # whatever the reason, nothing was made
        return self._filled(made, place)

    def destroy(self, instance: GpuInstance) -> None:
        """Compute instances, then the GPU instance; what is gone already is fine."""
        made = self._instances.find(instance)
        if made is None:
            return
        try:
            self._refuse_held(instance.place, made)
            self._emptied(made)
        except GoneError as error:
            if self._instances.exists(made):
                raise self._not_yet(instance.place, error) from error
        except TransientError as error:
            # a process may have come in between; without one it is a handle, or passes by itself
            self._refuse_held(instance.place, made)
            raise self._not_yet(instance.place, error) from error

    def environment(self, instance: GpuInstance) -> Mapping[str, str]:
        """CUDA sees that instance alone; a container that the worker starts, too."""
        if instance.uuid is None:
            raise GpuError(
                f"{instance.place} on GPU {self._index} has no compute instance, nothing can run "
                "there; destroy it and create it again"
            )
        return {"CUDA_VISIBLE_DEVICES": instance.uuid, "NVIDIA_VISIBLE_DEVICES": instance.uuid}

    def holders(self) -> tuple[Holder, ...]:
        """Every process that computes on the GPU, on an instance or on the whole."""
        return tuple(holder(pid) for pid in self._nvml.processes(self._device))

    def mig_mode(self) -> tuple[bool, bool]:
        """Whether MIG mode is on, and whether it will be after a reset."""
        return self._nvml.mig_mode(self._device)

    def enable_mig(self) -> None:
        """MIG mode on. Only for an operator who asked for it: the GPU may be reset."""
        if self.mig_mode()[0]:
            return
        try:
            self._nvml.enable_mig(self._device)
        except InUseError as error:
            raise InUseError(
                f"MIG mode of GPU {self._index} stays off because {self._users()} uses the "
                "GPU; end that, also what only watches it (`systemctl stop nvidia-dcgm`), and try "
                "again"
            ) from error

    def _users(self) -> str:
        """Who uses the whole GPU, as far as NVML tells."""
        with suppress(GpuError):
            if held := self.holders():
                return ", ".join(map(str, held))
        return "a process that NVML does not list"

    @cached_property
    def _board(self) -> MigBoard:
        return read_board(self._nvml, self._device)

    @cached_property
    def _instances(self) -> MigInstances:
        return MigInstances(self._nvml, self._device, self._board)

    def _mig_off(self) -> str:
        return (
            f"MIG mode of GPU {self._index} is off; `migrator gpu apply LAYOUT --enable-mig` or "
            f"`nvidia-smi -i {self._index} -mig 1` switches it on"
        )

    def _filled(self, made: GpuInstanceHandle, place: Place) -> GpuInstance:
        failed = f"made no compute instance for {place}"
        try:
            self._nvml.create_compute_instance(made, self._instances.full_size(made).id)
            failed = f"made {place} but could not tell of it"
            return self._instances.read(made)
        except BaseException as error:
            number = self._number(made)
            removed = self._removed(made)
            if not isinstance(error, MigratorError):
                raise
            why = f"GPU {self._index} {failed} ({error.__cause__ or error})"
            if not removed:
                raise self._half_made(why, number) from error
            refused = isinstance(error, NotPermittedError)
            kind = NotPermittedError if refused else RefusedError
            remedy = RIGHTS if refused else "try again, and look at `dmesg` if it stays"
            raise kind(f"{why}; nothing of it is left; {remedy}") from error

    def _half_made(self, why: str, number: int | None) -> GpuError:
        """What is told of a GPU instance that stays, so that only that one is removed later."""
        smi = f"nvidia-smi mig -i {self._index}"
        if number is None:
            return GpuError(f"{why}; whether its GPU instance is there `{smi} -lgi` tells")
        words = f"its GPU instance could not be removed either; `{smi} -dgi -gi {number}` does it"
        return HalfMadeError(f"{why}; {words}", number)

    def _number(self, made: GpuInstanceHandle) -> int | None:
        try:
            return self._nvml.gpu_instance_info(made).number
        except GpuError:
            return None

    def _removed(self, made: GpuInstanceHandle) -> bool:
        """Removes a GPU instance that nobody can use yet; whether it has gone."""
        for pause_s in (*PAUSES_S, None):
            try:
                self._emptied(made)
                return True
            except GoneError:
                return True
            except TransientError:
                if pause_s is not None:
                    self._pause(pause_s)
            except GpuError:
                break
        return False

    def _emptied(self, made: GpuInstanceHandle) -> None:
        """Whoever used it has ended by now: what still refuses does so for a moment."""
        try:
            for compute in self._instances.compute(made):
                self._nvml.destroy_compute_instance(compute)
        except InUseError as error:
            raise TransientError(str(error)) from error.__cause__
        try:
            self._nvml.destroy_gpu_instance(made)
        except (NotPermittedError, LostError, TransientError):
            raise
        except GpuError as error:
            if self._instances.exists(made):
                raise TransientError(str(error)) from error.__cause__

    def _not_yet(self, place: Place, error: GpuError) -> TransientError:
        return TransientError(
            f"GPU {self._index} still holds {place} though no process is on it "
            f"({error.__cause__ or error}); try again, and if it stays, stop what watches the GPU "
            "(`systemctl stop nvidia-dcgm`)"
        )

    def _refuse_held(self, place: Place, made: GpuInstanceHandle) -> None:
        holders = self._instances.read(made).holders
        if holders:
            raise InUseError(
                f"{place} on GPU {self._index} is in use by {', '.join(map(str, holders))}; end "
                f"{'it' if len(holders) == 1 else 'them'} first, nothing is ever killed"
            )

    def _in_the_way(self, place: Place) -> str:
        board = self._board.board
        there = [
            f"{each.place}{'' if each.uuid else ' (half-made)'}"
            for each in self.instances()
            if slices(board, each.place) & slices(board, place)
        ]
        return f": {', '.join(there)} {'is' if len(there) == 1 else 'are'} there" if there else ""

    def _width(self, place: Place) -> int:
        return self._board.board.profile(place.profile).memory_slices


@contextmanager
def opened(
    index: int,
    *,
    boot_id: Callable[[], str] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[MigDriver]:
    """The driver of a GPU, with NVML open as long as it is used."""
    with _nvml() as (nvml, boot):
        yield MigDriver(nvml, index, boot_id=boot_id or boot, pause=pause)


def gpu_count() -> int:
    """How many GPUs NVML finds; InputError where there is no NVML."""
    with _nvml() as (nvml, _):
        return nvml.count()


@contextmanager
def _nvml() -> Iterator[tuple[Nvml, Callable[[], str]]]:
    """NVML and what names this boot: the machine's, or those of a fake machine."""
    if not os.environ.get(FAKE_NVML):
        with nvml_calls.opened() as nvml:
            yield nvml, boot_id
        return
    # loaded only where somebody asked for it: it is no part of the driver
    fakes = importlib.import_module("migrator.gpu.fake_nvml")
    with fakes.from_environment() as fake, nvml_calls.opened() as nvml:
        yield nvml, fake.boot_id
