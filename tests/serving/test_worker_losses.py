"""What may happen to worker processes: killed, hanging, without forkserver, without daemon."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import PYTHONPATH
from support.children import child
from support.served_models import HANG, SLOW
from support.serving import (
    OBEDIENT,
    SharedWorkers,
    assignment,
    children,
    in_uvloop,
    pictures,
    run_on_uvloop,
    shared_workers,
    started,
)
from support.waiting import until_async

from migrator.core.errors import InputError, MigratorError
from migrator.io.child_process import Channel
from migrator.io.processes import is_running
from migrator.serving.workers.forkserver_process import ForkserverLoop, has_opened_gpu
from migrator.serving.workers.messages import ModelSpec, ToForkserver, WorkerLostError
from migrator.serving.workers.pool import ServingWorker, Workers


@pytest.fixture(autouse=True)
def _own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedWorkers]:
    """They give up a stopped process soon, and wait for less time than a slow model is built."""
    with shared_workers(tmp_path_factory.mktemp("impatient") / "run", hang_s=4.0) as shared:
        yield shared


class Losses(list[tuple[ServingWorker, str]]):
    """Who was reported lost."""

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        workers.lost = lambda worker, why: self.append((worker, why))


async def test_a_killed_worker_is_noticed_idle_and_serving(workers: Workers) -> None:
    losses = Losses(workers)
    idle, serving = await workers.take(assignment()), await workers.take(assignment())
    batch = asyncio.create_task(serving.infer(pictures(HANG)))
    await asyncio.sleep(0)
    os.kill(idle.pid, signal.SIGKILL)
    await until_async(lambda: len(losses) == 1)
    os.kill(serving.pid, signal.SIGSEGV)
    with pytest.raises(WorkerLostError, match=serving.name):
        await batch
    await until_async(lambda: len(losses) == 2)
    assert [worker for worker, _ in losses] == [idle, serving]
    assert "was killed by SIGKILL" in losses[0][1]
    assert "was killed by SIGSEGV" in losses[1][1]
    with pytest.raises(WorkerLostError):
        await idle.infer(pictures())
    await idle.release()


async def test_a_worker_that_hangs_is_killed_and_reported(workers: Workers) -> None:
    losses = Losses(workers)
    worker = await workers.take(assignment(limit_s=0.3))
    with pytest.raises(WorkerLostError, match=r"within 0\.3 s"):
        await worker.infer(pictures(HANG))
    await until_async(lambda: losses)
    assert losses[0][0] is worker
    assert "did not answer" in losses[0][1]
    assert not is_running(worker.pid)


async def test_a_stopped_worker_is_killed_while_it_takes_an_instance(impatient: Workers) -> None:
    losses = Losses(impatient)
    before = children(impatient.forkserver.pid or 0)
    await impatient.prepare("a", 1)
    (waiting,) = children(impatient.forkserver.pid or 0) - before
    os.kill(waiting, signal.SIGSTOP)
    with pytest.raises(WorkerLostError, match="did not answer"):
        await impatient.take(assignment())
    assert not is_running(waiting)
    assert not losses
    worker = await impatient.take(assignment())
    assert (await worker.infer(pictures())).version == 1


@in_uvloop
async def test_a_worker_that_nobody_waits_for_any_more_has_ended_when_all_are_closed(
    tmp_path: Path,
) -> None:
    async with started(tmp_path / "run") as workers:
        forkserver = workers.forkserver.pid or 0
        await workers.prepare("a", 1)
        (first,) = children(forkserver)
        os.kill(forkserver, signal.SIGSTOP)
        preparing = asyncio.create_task(workers.prepare("a", 2))
        await asyncio.sleep(0.1)
        preparing.cancel()
        await asyncio.gather(preparing, return_exceptions=True)
        closing = asyncio.create_task(workers.close())
        await asyncio.sleep(0.5)
        os.kill(forkserver, signal.SIGCONT)
        await closing
        assert not is_running(first)
        assert not is_running(forkserver)
        # else the loop has an open connection when it is closed, and raises


async def test_released_workers_finish_their_batch_and_are_no_losses(workers: Workers) -> None:
    losses = Losses(workers)
    worker = await workers.take(assignment())
    batch = asyncio.create_task(worker.infer(pictures(SLOW)))
    await asyncio.sleep(0)
    await worker.release()
    assert (await batch).version == 1
    stuck = await workers.take(assignment(limit_s=0.3))
    os.kill(stuck.pid, signal.SIGSTOP)
    await stuck.release()
    assert not is_running(stuck.pid)
    assert not losses


async def test_a_process_that_is_not_needed_any_more_when_it_is_forked_is_reaped(
    workers: Workers,
) -> None:
    pid = workers.forkserver.pid or 0
    forked = Path(f"/proc/{pid}/task/{pid}/children")
    before = len(forked.read_text(encoding="ascii").split())
    os.kill(pid, signal.SIGSTOP)
    asked = [asyncio.create_task(workers.take(assignment())) for _ in range(3)]
    await asyncio.sleep(0.05)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    os.kill(pid, signal.SIGCONT)
    await workers.prepare("a", 1)  # forked after the others
    await until_async(lambda: len(forked.read_text(encoding="ascii").split()) == before + 1)


async def test_a_forkserver_that_does_not_answer_is_replaced(impatient: Workers) -> None:
    before = impatient.forkserver.pid or 0
    os.kill(before, signal.SIGSTOP)
    with pytest.raises(WorkerLostError, match="did not answer"):
        await impatient.take(assignment())
    await until_async(lambda: impatient.forkserver.pid not in (before, None))
    worker = await impatient.take(assignment())
    assert (await worker.infer(pictures())).version == 1


@in_uvloop
async def test_a_forkserver_that_dies_while_building_is_reported(tmp_path: Path) -> None:
    workers = Workers(tmp_path / "run", {"a": ModelSpec("support.served_models:Deadly", 3)})
    with pytest.raises(MigratorError, match="died while it built the models"):
        await workers.start()
    await workers.close()


DAEMON = """
import asyncio, sys
from contextlib import suppress
from pathlib import Path
from support.served_models import HANG
from support.serving import assignment, pictures, started

async def life():
    async with started(Path(sys.argv[1])) as workers:
        await workers.prepare("a", 1)
        idle = await workers.take(assignment())
        busy = await workers.take(assignment())
        batch = asyncio.create_task(busy.infer(pictures(HANG)))
        await asyncio.sleep(0.1)
        print(workers.forkserver.pid, flush=True)
        await batch

asyncio.run(life())
"""


def test_everything_ends_with_a_killed_daemon(tmp_path: Path) -> None:
    with child("-c", DAEMON, tmp_path / "run") as (_, forkserver):
        everybody = {int(forkserver), *children(int(forkserver))}
        assert len(everybody) >= 3
        assert all(map(is_running, everybody))
    run_on_uvloop(until_async(lambda: not any(map(is_running, everybody))))


SLOW_TO_IMPORT = "import time\ntime.sleep(60)\n"


def test_a_forkserver_that_still_imports_ends_with_the_daemon_too(tmp_path: Path) -> None:
    (tmp_path / "slow_model.py").write_text(SLOW_TO_IMPORT, encoding="utf-8")
    program = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from migrator.serving.workers.messages import ModelSpec\n"
        "from migrator.serving.workers.pool import Workers\n"
        "workers = Workers(Path(sys.argv[1]), {'a': ModelSpec('slow_model:Model', 3)})\n"
        "asyncio.run(workers.start())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{tmp_path}"},
    ) as daemon:
        run_on_uvloop(until_async(lambda: children(daemon.pid)))
        (forkserver,) = children(daemon.pid)
        command = Path(f"/proc/{forkserver}/cmdline")
        run_on_uvloop(
            until_async(
                lambda: b"migrator.serving.workers.forkserver_process" in command.read_bytes()
            )
        )
        daemon.kill()
    run_on_uvloop(until_async(lambda: not is_running(forkserver)))


def test_a_process_that_uses_the_gpu_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "3").symlink_to("/dev/nvidiactl")
    assert not has_opened_gpu(tmp_path)
    (tmp_path / "4").symlink_to("/dev/nvidia-uvm")
    assert has_opened_gpu(tmp_path)


async def test_a_model_that_uses_the_gpu_when_built_is_refused_and_spoils_no_other(
    workers: Workers,
) -> None:
    opens = ModelSpec("support.slow_model:OpensGpu", 3)
    before = workers.forkserver.pid
    with pytest.raises(InputError, match=r"tenant b: importing or building .* uses the GPU"):
        await workers.add("b", opens)
    worker = await workers.take(assignment())
    assert (await worker.infer(pictures())).version == 1
    assert workers.forkserver.pid == before


@in_uvloop
async def test_a_function_that_uses_the_gpu_before_trainings_are_forked_is_refused(
    tmp_path: Path,
) -> None:
    models = {"a": ModelSpec("support.slow_model:Slow", 3)}
    workers = Workers(tmp_path / "run", models, prepare=("support.slow_model:open_gpu",))
    with pytest.raises(InputError, match=r"preparing trainings .*:open_gpu.* uses the GPU"):
        await workers.start()
    await workers.close()


async def test_workers_outlive_their_forkserver_and_an_added_tenant_has_one_of_its_own(
    workers: Workers,
) -> None:
    losses, first = Losses(workers), workers.forkserver.pid or 0
    worker = await workers.take(assignment())
    before = children(first)
    await workers.add("b", ModelSpec(OBEDIENT, 3))
    (killed,) = children(first) - before
    os.kill(killed, signal.SIGKILL)
    await until_async(lambda: any(map(is_running, children(first) - before - {killed})))
    (own,) = children(first) - before - {killed}
    await _serves(workers, "b")
    os.kill(first, signal.SIGKILL)
    assert (await worker.infer(pictures())).version == 1
    await until_async(lambda: workers.forkserver.pid not in (first, None))
    await workers.prepare("a", 1)
    await _serves(workers, "a")
    await _serves(workers, "b")
    os.kill(worker.pid, signal.SIGKILL)
    await until_async(lambda: losses)
    assert losses[0][0] is worker
    await workers.remove("b")
    assert set(workers.interfaces) == {"a"}
    await until_async(lambda: not is_running(own))


async def test_forkservers_that_died_must_all_run_again_unless_one_is_not_needed(
    impatient: Workers,
) -> None:
    """That of `b` builds for longer than the first may take to answer."""
    slow = ModelSpec("support.slow_model:VerySlowlyBuilt", 3)
    first, changes = impatient.forkserver.pid or 0, list[set[str]]()
    impatient.forkserver.changed = lambda stopped: changes.append({*stopped})
    before = children(first)
    adding = asyncio.create_task(impatient.add("b", slow))
    await _serves(impatient, "a")
    assert not adding.done()
    await adding
    await impatient.take(assignment(slow.model, tenant="b"))
    (own,) = children(first) - before
    os.kill(own, signal.SIGKILL)
    await until_async(lambda: changes == [{"b"}])
    os.kill(first, signal.SIGKILL)
    await until_async(lambda: impatient.forkserver.pid not in (first, None))
    await until_async(lambda: changes[-1] == {"b"})
    assert {"a", "b"} in changes
    assert set() not in changes
    await impatient.remove("b")  # its forkserver still builds
    assert changes[-1] == set()


async def _serves(workers: Workers, tenant: str) -> None:
    worker = await workers.take(assignment(tenant=tenant))
    assert (await worker.infer(pictures())).version == 1
    await worker.release()


async def test_a_forkserver_at_its_limit_of_open_files_says_so_and_goes_on(
    workers: Workers,
) -> None:
    forkserver = workers.forkserver.pid or 0
    used = {int(path.name) for path in Path(f"/proc/{forkserver}/fd").iterdir()}
    before = resource.prlimit(forkserver, resource.RLIMIT_NOFILE)
    least = min(set(range(len(used) + 1)) - used)
    resource.prlimit(forkserver, resource.RLIMIT_NOFILE, (least, before[1]))
    with pytest.raises(WorkerLostError, match="too many open files"):
        await workers.take(assignment())
    resource.prlimit(forkserver, resource.RLIMIT_NOFILE, before)
    worker = await workers.take(assignment())
    assert (await worker.infer(pictures())).version == 1
    assert workers.forkserver.pid == forkserver
    assert "Traceback" not in workers.log.read_text(encoding="utf-8")


async def test_a_daemon_at_its_limit_of_open_files_says_so_and_goes_on(workers: Workers) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(list(Path("/proc/self/fd").iterdir())) + 50
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for _ in range(3):  # no socket pair, no socket pair, no handle
            with pytest.raises(WorkerLostError, match=r"(?i)too many open files"):
                await workers.take(assignment())
            os.close(taken.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in taken:
            os.close(fd)
    worker = await workers.take(assignment())
    assert (await worker.infer(pictures())).version == 1


def test_a_forkserver_whose_daemon_is_gone_before_its_first_message_ends_quietly() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        ForkserverLoop(Channel(theirs, ToForkserver), theirs).run()
