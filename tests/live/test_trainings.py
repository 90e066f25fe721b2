"""Trainings with real processes: followed, killed, resumed, out of disk, orphaned, closed."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.live_learning import ENVIRONMENT, MEANS, MODEL, SETTINGS, made_job
from support.slow_model import BUILD_S
from support.waiting import until_async

from migrator.core.errors import InputError
from migrator.core.placement import Place
from migrator.gpu.drivers.emulated import EmulatedDriver
from migrator.io.processes import is_running
from migrator.live.labels import Labels
from migrator.live.retrainer import EPOCHS, RETRAINED, Work, _has_opened_gpu
from migrator.live.training import (
    JobKind,
    RetrainerProcess,
    TrainingFailedError,
    TrainingJob,
    TrainingLostError,
    TrainingResult,
    Trainings,
)
from migrator.serve.workers.messages import ModelSpec

LIMIT_S = 60.0
SLOW_S = 6000.0
"""A pace at which nothing ends by itself in a test."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    return made_job(tmp_path / "learning", MEANS)


@pytest.fixture
def torch_job(tmp_path: Path) -> TrainingJob:
    return made_job(tmp_path / "torch", MODEL)


def epochs_of(job: TrainingJob) -> list[Path]:
    return list((job.folder / EPOCHS).glob("*.json"))


def running_environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_a_retraining_holds_its_instance_reports_progress_and_gets_no_secret(
    job: TrainingJob, tmp_path: Path
) -> None:
    driver = EmulatedDriver(tmp_path / "board", pace=0)
    instance = driver.create(Place(0, "3g.20gb"))
    here = replace(job, environment=driver.environment(instance), pace_s=1.0)
    progress: list[float] = []
    seen: list[tuple[bytes, tuple[str, ...]]] = []

    def follow(part: float) -> None:
        progress.append(part)
        holders = tuple(str(each) for each in driver.instances()[0].holders)
        seen.append((running_environment(trainings.pids[0]), holders))

    trainings = Trainings(job.folder.parent / "log")

    async def scene() -> TrainingResult:
        came = await trainings.train(here, follow)
        assert trainings.running == ()
        assert trainings.pids == ()
        return came

    came = asyncio.run(scene())
    assert came.adopted
    assert came.weights == job.folder / RETRAINED
    assert came.seconds >= 1.0
    assert progress == sorted(progress)
    assert progress[-1] == 1
    environment, holders = seen[0]
    assert b"secret" not in environment
    assert holders
    assert holders[0].startswith("migrator retrain vision")
    assert driver.instances()[0].holders == ()


async def test_a_retrainer_imports_what_its_model_needs_and_not_torch(
    job: TrainingJob, torch_job: TrainingJob
) -> None:
    """Importing torch takes seconds of every window in which a model without it is retrained."""
    mapped: list[str] = []

    def follow(_part: float) -> None:
        mapped.append(Path(f"/proc/{trainings.pids[0]}/maps").read_text(encoding="utf-8"))

    trainings = Trainings(job.folder.parent / "log")
    for each in (job, torch_job):
        await trainings.prepare([each.model])
        assert (await trainings.train(each, follow)).adopted
    await trainings.close()
    assert "libtorch" not in mapped[0]
    assert "libtorch" in mapped[-1]


async def test_a_process_waits_with_the_model_built_and_another_follows_it(
    job: TrainingJob,
) -> None:
    slow = replace(job, model=replace(job.model, model="support.slow_model:SlowlyBuilt"))
    trainings = Trainings(job.folder.parent / "log")
    cold = await trainings.train(slow)
    assert cold.start_s >= BUILD_S
    await trainings.prepare([slow.model])
    (first,) = trainings.pids
    await asyncio.sleep(BUILD_S + cold.start_s)
    warm = await trainings.train(replace(slow, replay=39))
    assert warm.start_s < BUILD_S
    assert (warm.adopted, warm.accuracy_before) == (True, cold.accuracy_before)
    # the next one waits without being asked for
    await until_async(lambda: len(trainings.pids) == 1 and trainings.pids != (first,))
    await trainings.close()
    assert trainings.pids == ()


def test_a_process_that_opened_the_gpu_ahead_of_its_job_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "3").symlink_to("/dev/nvidiactl")
    assert not _has_opened_gpu(tmp_path)
    (tmp_path / "4").symlink_to("/dev/nvidia-uvm")
    assert _has_opened_gpu(tmp_path)
    assert not _has_opened_gpu()


async def test_a_job_for_a_model_that_opens_the_gpu_ahead_is_done(job: TrainingJob) -> None:
    opens = replace(job, model=replace(job.model, model="support.slow_model:OpensGpu"))
    log = job.folder.parent / "log"
    trainings = Trainings(log)
    await trainings.prepare([opens.model])
    (pid,) = trainings.pids
    came: list[tuple[int, ...]] = []
    # the job arrives while the model is built
    assert (await trainings.train(opens, lambda _part: came.append(trainings.pids))).adopted
    assert pid in came[0]
    await trainings.close()
    assert "opens the GPU when it is built" in log.read_text(encoding="utf-8")


async def test_processes_of_models_that_no_tenant_has_end(job: TrainingJob) -> None:
    trainings = Trainings(job.folder.parent / "log")
    await trainings.prepare([job.model, replace(job.model, seed=1)])
    first, second = trainings.pids
    await trainings.prepare([replace(job.model, seed=1)])
    assert trainings.pids == (second,)
    assert not is_running(first)
    await trainings.prepare([])
    assert not trainings.pids
    assert not is_running(second)
    await trainings.close()


async def test_closing_ends_a_process_that_is_being_started(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    start = RetrainerProcess.start

    async def slowly(log: Path, model: ModelSpec | None = None) -> RetrainerProcess:
        process = await start(log, model)
        started.append(process.pid)
        await asyncio.sleep(0.2)
        return process

    monkeypatch.setattr(RetrainerProcess, "start", slowly)
    trainings = Trainings(job.folder.parent / "log")
    filling = asyncio.create_task(trainings.prepare([job.model] * 2))
    await until_async(lambda: bool(started))
    await trainings.close()
    await filling
    assert len(started) == 1
    assert not is_running(started[0])


def test_a_killed_retraining_goes_on_and_ends_with_the_same_model(
    torch_job: TrainingJob, tmp_path: Path
) -> None:
    job = replace(torch_job, settings=replace(SETTINGS, epochs=8))

    async def scene() -> TrainingResult:
        trainings = Trainings(job.folder.parent / "log")
        await trainings.prepare([job.model] * 2)
        # so slow that seven epochs are still to come when the first is seen
        lost = asyncio.create_task(trainings.train(replace(job, pace_s=30.0)))
        await until_async(lambda: bool(epochs_of(job)) or lost.done())
        os.kill(trainings.pids[0], signal.SIGKILL)
        with pytest.raises(TrainingLostError, match="goes on from its last epoch"):
            await lost
        came = await trainings.train(job)
        await trainings.close()
        return came

    came = asyncio.run(scene())
    straight = replace(job, folder=tmp_path / "straight")
    whole = Work(straight, time.monotonic(), lambda _part: None).run()
    assert isinstance(whole, TrainingResult)
    assert 1 <= came.epochs_resumed < 8
    assert whole.epochs_resumed == 0
    assert came.curve == whole.curve
    assert came.weights is not None
    assert whole.weights is not None
    assert came.weights.read_bytes() == whole.weights.read_bytes()


async def test_a_full_disk_is_reported_and_leaves_nothing_half_written(
    torch_job: TrainingJob,
) -> None:
    job = torch_job
    assert job.labels is not None
    labels = Labels(job.labels)  # as beside a daemon: what reading needs is there already
    trainings = Trainings(job.folder.parent / "log")
    await trainings.prepare([job.model])
    (pid,) = trainings.pids
    # less than a checkpoint, more than the small files before it
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    with pytest.raises(TrainingFailedError, match="cannot be written"):
        await trainings.train(job)
    await trainings.close()
    await labels.close()
    assert not (job.folder / RETRAINED).exists()
    assert not epochs_of(job)
    assert not list(job.folder.rglob("*.unfinished"))


_DAEMON = """
import asyncio, sys
from pathlib import Path
import msgspec
from migrator.live.training import TrainingJob, Trainings

async def main():
    path = Path(sys.argv[1])
    job = msgspec.json.decode(path.read_bytes(), type=TrainingJob, dec_hook=lambda t, v: t(v))
    trainings = Trainings(path.with_name("log"))
    await trainings.prepare([job.model] * 2)
    asked = asyncio.create_task(trainings.train(job, lambda part: print("busy", flush=True)))
    await asyncio.sleep(0)
    while len(trainings.pids) < 2 or not trainings.running:
        await asyncio.sleep(0.01)
    print(*trainings.pids, flush=True)
    await asked

asyncio.run(main())
"""


def test_the_processes_of_a_killed_daemon_end_by_themselves(
    job: TrainingJob, tmp_path: Path
) -> None:
    path = tmp_path / "job.json"
    slow = replace(job, pace_s=SLOW_S)
    path.write_bytes(msgspec.json.encode(slow, enc_hook=str))
    with subprocess.Popen(
        [sys.executable, "-c", _DAEMON, str(path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as daemon:
        assert daemon.stdout is not None
        pids = [int(each) for each in daemon.stdout.readline().split()]
        assert len(pids) == 2
        assert daemon.stdout.readline() == "busy\n"
        daemon.kill()
    until_s = time.monotonic() + LIMIT_S
    try:
        while any(map(is_running, pids)) and time.monotonic() < until_s:
            time.sleep(0.05)
        assert not any(map(is_running, pids))
    finally:
        for each in pids:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


async def test_one_past_its_limit_cancelled_or_there_at_the_end_is_ended(
    job: TrainingJob, tmp_path: Path
) -> None:
    trainings = Trainings(job.folder.parent / "log")
    with pytest.raises(TrainingLostError, match=r"did not answer within 0\.05 s"):
        await trainings.train(replace(job, limit_s=0.05))
    jobs = [replace(job, tenant=tenant, folder=tmp_path / tenant) for tenant in ("one", "two")]
    asked = [asyncio.create_task(trainings.train(each)) for each in jobs]
    await until_async(lambda: len(trainings.pids) == 2)
    with pytest.raises(InputError, match="uses this folder already"):
        await trainings.train(jobs[0])
    pids = trainings.pids
    trainings.cancel("one", JobKind.ESTIMATE)
    assert trainings.pids == pids
    trainings.cancel("one", JobKind.RETRAIN)
    with pytest.raises(TrainingLostError, match="ended on request"):
        await asked[0]
    assert trainings.running == (("two", JobKind.RETRAIN),)
    await trainings.prepare([job.model])
    pids = (*pids, *trainings.pids)
    await trainings.close()
    with pytest.raises(TrainingLostError, match="the daemon stops"):
        await asked[1]
    with pytest.raises(TrainingLostError, match="while the daemon stops"):
        await trainings.train(job)
    assert not any(map(is_running, pids))


async def test_a_cancelled_caller_ends_the_process(job: TrainingJob) -> None:
    trainings = Trainings(job.folder.parent / "log")
    asked = asyncio.create_task(trainings.train(job))
    await until_async(lambda: bool(trainings.pids))
    (pid,) = trainings.pids
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not is_running(pid)
    assert trainings.running == ()


def test_the_daemons_side_never_loads_torch() -> None:
    parts = ("training", "labels", "training_data", "versions")
    code = "".join(f"import migrator.live.{each}\n" for each in parts)
    code += "import migrator.records.store, sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "safetensors", "numba"} & set(done.stdout.split())
