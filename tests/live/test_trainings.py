"""Trainings with real processes: forked, followed, killed, resumed, out of disk, orphaned."""

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
from support.live_learning import (
    ENVIRONMENT,
    MEANS,
    MODEL,
    SETTINGS,
    forkserver_for,
    made_job,
    trainings_for,
)
from support.waiting import LIMIT_S, until, until_async

from migrator.core.catalogue import Place
from migrator.core.errors import InputError
from migrator.gpu.drivers.virtual_board import EmulatedDriver
from migrator.io.processes import is_running
from migrator.live.labels import Labels
from migrator.live.retrainer import EPOCHS, RETRAINED, Work
from migrator.live.training import (
    JobKind,
    TrainingFailedError,
    TrainingJob,
    TrainingLostError,
    TrainingResult,
    Trainings,
)
from migrator.serving.workers.forkserver_process import build_all, has_opened_gpu

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
    job = made_job(tmp_path / "torch", MODEL)
    return replace(job, model=replace(MODEL, model="support.tiny_model:Threaded"))


def epochs_of(job: TrainingJob) -> list[Path]:
    return list((job.folder / EPOCHS).glob("*.json"))


def mapped_by(trainings: Trainings) -> str:
    """Files in the memory of the training that runs."""
    return Path(f"/proc/{trainings.pids[0]}/maps").read_text(encoding="utf-8")


def running_environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_retraining_holds_its_instance_reports_progress_and_gets_no_secret(
    job: TrainingJob, tmp_path: Path
) -> None:
    (tmp_path / "board").mkdir()
    driver = EmulatedDriver(tmp_path / "board", pace=0)
    instance = driver.create(Place(0, "3g.20gb"))
    here = replace(job, environment=driver.environment(instance), pace_s=1.0)
    progress: list[float] = []
    seen: list[tuple[bytes, tuple[str, ...], str]] = []

    def follow(part: float) -> None:
        progress.append(part)
        holders = tuple(str(holder) for holder in driver.instances()[0].holders)
        seen.append((running_environment(trainings.pids[0]), holders, mapped_by(trainings)))

    async with trainings_for(job) as (trainings, _):
        result = await trainings.train(here, follow)
        assert trainings.running == ()
        assert trainings.pids == ()
    assert result.adopted
    assert result.weights == job.folder / RETRAINED
    assert result.seconds >= 1.0
    assert progress == sorted(progress)
    assert progress[-1] == 1
    environment, holders, mapped = seen[0]
    assert b"secret" not in environment
    assert "libtorch" not in mapped, "importing it takes seconds of every window"
    assert holders
    assert holders[0].startswith("migrator retrain vision")
    assert driver.instances()[0].holders == ()


async def test_any_number_of_jobs_begin_at_once_with_the_model_that_is_built(
    job: TrainingJob, tmp_path: Path
) -> None:
    noting = replace(job, model=replace(job.model, model="support.slow_model:ToldWhenBuilt"))
    estimate = replace(noting, kind=JobKind.ESTIMATE, folder=tmp_path / "estimate")
    jobs = [replace(noting, folder=tmp_path / name) for name in ("one", "two")]
    async with trainings_for(noting) as (trainings, _):
        training = asyncio.gather(*map(trainings.train, jobs))
        await trainings.estimate(estimate)
        trained = await training
    assert all(result.adopted for result in trained)
    assert (job.folder.parent / "workers.log").read_text(encoding="utf-8").count("built") == 1
    assert "built" not in (job.folder.parent / "log").read_text(encoding="utf-8")


async def test_a_forked_training_may_use_threads_and_has_imported_the_compiler(
    torch_job: TrainingJob,
) -> None:
    job = torch_job
    limited, mapped = replace(job, limit_s=LIMIT_S), list[str]()
    async with trainings_for(job) as (trainings, forkserver):
        process = Path(f"/proc/{forkserver.pid}")
        assert len(list((process / "task").iterdir())) == 1
        assert not has_opened_gpu(process / "fd")
        result = await trainings.train(limited, lambda _: mapped.append(mapped_by(trainings)))
    assert result.adopted
    assert "libtorch" in mapped[0]
    said = (job.folder.parent / "log").read_text(encoding="utf-8")
    assert "2 threads" in said
    assert "imported:" in said
    assert "torch._dynamo" not in said


async def test_a_training_outlives_the_forkserver_and_the_next_waits_for_another(
    job: TrainingJob, tmp_path: Path
) -> None:
    async with trainings_for(job) as (trainings, forkserver):
        slow = replace(job, pace_s=2.0, folder=tmp_path / "slow")
        running = asyncio.create_task(trainings.train(slow))
        await until_async(lambda: bool(trainings.pids))
        before = forkserver.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await until_async(lambda: forkserver.pid != before)
        after = await trainings.train(replace(job, folder=tmp_path / "after"))
        assert after.adopted
        assert (await running).adopted
        assert forkserver.pid not in (before, None)
        # one that dies when asked loses only that job
        assert forkserver.pid is not None
        os.kill(forkserver.pid, signal.SIGSTOP)
        asked = asyncio.create_task(trainings.train(job))
        await asyncio.sleep(0.1)
        os.kill(forkserver.pid, signal.SIGKILL)
        with pytest.raises(TrainingLostError, match=r"the forkserver .* start it again"):
            await asked
        assert (await trainings.train(job)).adopted


async def test_a_job_that_waits_for_the_forkserver_ends_on_request_and_at_the_end(
    job: TrainingJob, tmp_path: Path
) -> None:
    trainings = Trainings(job.folder.parent / "log", forkserver_for(job))
    jobs = [replace(job, tenant=tenant, folder=tmp_path / tenant) for tenant in ("one", "two")]
    asked = [asyncio.create_task(trainings.train(job)) for job in jobs]
    await until_async(lambda: len(trainings.running) == 2)
    assert trainings.pids == ()
    trainings.cancel("one")
    with pytest.raises(TrainingLostError, match="ended on request"):
        await asked[0]
    await trainings.close()
    with pytest.raises(TrainingLostError, match="the daemon stops"):
        await asked[1]


async def test_an_unknown_tenant_is_refused_until_it_is_added_and_a_log_is_not_needed(
    job: TrainingJob,
) -> None:
    other = replace(job, tenant="other", model=replace(job.model, seed=1))
    async with trainings_for(job) as (trainings, forkserver):
        with pytest.raises(InputError, match="tenant other has no model here"):
            await trainings.train(other)
        await forkserver.add("other", other.model)
        with pytest.raises(TrainingFailedError, match="other has no labels"):
            await trainings.train(other)
        log = job.folder.parent / "log"
        log.unlink(missing_ok=True)
        log.mkdir()  # a folder where the file should be
        without_log = Trainings(log, forkserver)
        assert (await without_log.train(job)).adopted
    said = (job.folder.parent / "workers.log").read_text(encoding="utf-8")
    assert "cannot be written: IsADirectoryError" in said


async def test_a_killed_retraining_goes_on_and_ends_with_the_same_model(
    job: TrainingJob, tmp_path: Path
) -> None:
    job = replace(job, settings=replace(SETTINGS, epochs=8))
    async with trainings_for(job) as (trainings, _):
        # so slow that seven epochs are still to come when the first is seen
        lost = asyncio.create_task(trainings.train(replace(job, pace_s=30.0)))
        await until_async(lambda: bool(epochs_of(job)) or lost.done())
        os.kill(trainings.pids[0], signal.SIGKILL)
        with pytest.raises(TrainingLostError, match="goes on from its last epoch"):
            await lost
        result = await trainings.train(job)
    straight = replace(job, folder=tmp_path / "straight")
    built = build_all({"vision": job.model})["vision"]
    whole = Work(straight, built, time.monotonic(), lambda _part: None).run()
    assert isinstance(whole, TrainingResult)
    assert 1 <= result.epochs_resumed < 8
    assert whole.epochs_resumed == 0
    assert result.curve == whole.curve
    assert result.weights is not None
    assert whole.weights is not None
    assert result.weights.read_bytes() == whole.weights.read_bytes()


async def test_a_full_disk_is_reported_and_leaves_nothing_half_written(job: TrainingJob) -> None:
    assert job.labels is not None
    labels = Labels(job.labels)  # as beside a daemon: what reading needs is there already
    async with trainings_for(job) as (trainings, forkserver):
        # less than a checkpoint, more than the small files before it
        resource.prlimit(forkserver.pid or 0, resource.RLIMIT_FSIZE, (4_000, 4_000))
        with pytest.raises(TrainingFailedError, match="cannot be written"):
            await trainings.train(job)
    await labels.close()
    assert not (job.folder / RETRAINED).exists()
    assert not epochs_of(job)
    assert not list(job.folder.rglob("*.unfinished"))


_DAEMON = """
import asyncio, sys
from pathlib import Path
import msgspec
from support.live_learning import trainings_for
from migrator.live.training import TrainingJob

async def main():
    path = Path(sys.argv[1])
    job = msgspec.json.decode(path.read_bytes(), type=TrainingJob, dec_hook=lambda t, v: t(v))
    async with trainings_for(job) as (trainings, forkserver):
        asked = asyncio.create_task(trainings.train(job, lambda part: print("busy", flush=True)))
        while not trainings.pids:
            await asyncio.sleep(0.01)
        print(*trainings.pids, forkserver.pid, flush=True)
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
        pids = [int(pid) for pid in daemon.stdout.readline().split()]
        assert len(pids) == 2
        assert daemon.stdout.readline() == "busy\n"
        daemon.kill()
    try:
        until(lambda: not any(map(is_running, pids)), "they end")
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def test_one_past_its_limit_cancelled_or_there_at_the_end_is_ended(
    job: TrainingJob, tmp_path: Path
) -> None:
    slow = replace(job, pace_s=SLOW_S)
    estimate = replace(slow, kind=JobKind.ESTIMATE, folder=tmp_path / "estimate")
    async with trainings_for(job) as (trainings, _):
        with pytest.raises(TrainingLostError, match=r"did not answer within 0\.05 s"):
            await trainings.train(replace(slow, limit_s=0.05))
        asked = asyncio.create_task(trainings.train(slow))
        await until_async(lambda: bool(trainings.pids))
        (pid,) = trainings.pids
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not is_running(pid)
        assert not dict(trainings.running)
        training = asyncio.create_task(trainings.train(slow))
        estimating = asyncio.create_task(trainings.estimate(estimate))
        await until_async(lambda: len(trainings.pids) == 2)
        with pytest.raises(InputError, match="uses this folder already"):
            await trainings.train(slow)
        pids = trainings.pids
        trainings.cancel("vision", JobKind.PRETRAIN)
        trainings.cancel("other")
        assert trainings.pids == pids
        trainings.cancel("vision", JobKind.RETRAIN)
        with pytest.raises(TrainingLostError, match="ended on request"):
            await training
        assert trainings.running == (("vision", JobKind.ESTIMATE),)
        await trainings.close()
        with pytest.raises(TrainingLostError, match="the daemon stops"):
            await estimating
        with pytest.raises(TrainingLostError, match="while the daemon stops"):
            await trainings.train(job)
        assert not any(map(is_running, pids))


def test_the_daemons_side_loads_neither_torch_nor_the_planner() -> None:
    parts = ("training", "labels", "training_data", "versions")
    code = "".join(f"import migrator.live.{part}\n" for part in parts)
    code += "from migrator.policies.registry import policy\npolicy('migrator')\n"
    code += "import migrator.records.store, sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "safetensors", "numba"} & set(done.stdout.split())
