"""The parts of a daemon that must be opened and, whatever happens, closed again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from migrator.core.errors import InputError
from migrator.gpu.driver import Gpu
from migrator.gpu.processes import Process
from migrator.gpu.state import private_folder
from migrator.live import leftovers
from migrator.live.gpu_lane import GpuLane
from migrator.live.label_rows import LearnedBefore
from migrator.live.labels import Labels
from migrator.live.serving import Serving
from migrator.live.trainings import Trainings
from migrator.records.store import Records
from migrator.serve.links import Workers

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """The GPU, the files and the processes of one daemon."""

    lane: GpuLane
    gpu: Gpu
    labels: Labels
    records: Records
    workers: Workers
    trainings: Trainings


@asynccontextmanager
async def opened(serving: Serving, learned_before: LearnedBefore) -> AsyncIterator[Parts]:
    """All of them, and the models being built meanwhile.

    Building takes longest. It begins first and nothing waits for the rest before it: what a killed
    daemon left on the GPU is removed, and the files are checked, at the same time.
    """
    private_folder(serving.folder)
    orphans = await asyncio.to_thread(leftovers.kill, serving.folder)
    for each in orphans:
        _log.warning("process %d (%s) of a daemon that was killed is ended", each.pid, each.name)
    leftovers.mark(serving.folder)
    async with AsyncExitStack() as stack:
        lane, gpu = await _gpu(serving, orphans, stack)
        workers = Workers(serving.folder / "workers", serving.models, ahead=serving.ahead)
        stack.push_async_callback(workers.close)  # in case what follows fails
        workers.begin()
        share = None
        if serving.shared is not None:
            share = partial(serving.shared.keep_labels, learned_before=learned_before)
        # one that is still writing labels would be taken for damage
        await asyncio.to_thread(leftovers.wait_until_gone, orphans)
        # checking a gigabyte of labels takes seconds
        path = serving.folder / "labels.db"
        labels = await asyncio.to_thread(
            partial(Labels, path, learned_before=learned_before, share=share)
        )
        stack.push_async_callback(labels.close)
        records = await asyncio.to_thread(_records, serving)
        stack.callback(records.close)
        stack.push_async_callback(workers.close)  # before the records that tell how workers ended
        trainings = Trainings()
        stack.push_async_callback(trainings.close)
        yield Parts(lane, gpu, labels, records, workers, trainings)


async def _gpu(
    serving: Serving, orphans: Sequence[Process], stack: AsyncExitStack
) -> tuple[GpuLane, Gpu]:
    board = serving.live.scenario.board
    named = board.name if serving.emulated else None
    lane = GpuLane(serving.driver, serving.gpu, serving.state, named)
    gpu = await lane.open(orphans)
    stack.push_async_callback(lane.close)
    if (gpu.board.sizes, gpu.board.memory_slices) != (board.sizes, board.memory_slices):
        raise InputError(
            f"gpu: the scenario is of a {board.name}, GPU {serving.gpu} is a {gpu.board.name}; "
            "write the board you have"
        )
    return lane, gpu


def _records(serving: Serving) -> Records:
    scenario = serving.live.scenario
    return Records(
        serving.records,
        scenario=scenario.name,
        board=scenario.board.name,
        driver=serving.driver,
        policy=scenario.policy,
        seed=scenario.seed,
        about={
            "window_s": scenario.window_s,
            "slot_s": scenario.slot_s,
            "tenants": [each.name for each in serving.live.tenants],
        },
    )
