"""Child processes: the variables that they get, and how they are ended."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import migrator
from migrator.io.child_process import ChildProcess, Release
from migrator.io.spawn import child_environment, exit_status


def test_only_what_is_needed_passes() -> None:
    inherited = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        "MIGRATOR_DATA": "/data",
        "MIGRATOR_LOG_FORMAT": "json",
        "MIGRATOR_TRUST_REMOTE_CODE": "1",
        "XDG_CACHE_HOME": "/cache",
        "HF_HOME": "/hub",
        "PYTHONPATH": "/own",
        "OMP_NUM_THREADS": "8",
        "NVIDIA_API_KEY": "secret",
        "PYTHON_TOKEN": "secret",
        "MIGRATOR_ADMIN_TOKEN": "secret",
        "HF_TOKEN": "secret",
        "AWS_PROFILE": "somebody",
    }
    source = str(Path(migrator.__file__).parent.parent)
    assert child_environment(inherited) == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        "MIGRATOR_DATA": "/data",
        "MIGRATOR_LOG_FORMAT": "json",
        "MIGRATOR_TRUST_REMOTE_CODE": "1",
        "XDG_CACHE_HOME": "/cache",
        "HF_HOME": "/hub",
        "PYTHONPATH": f"{source}{os.pathsep}/own",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


BUSY = """
import sys, time
from types import SimpleNamespace

def synchronize():
    print("the GPU is done", flush=True)

cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=synchronize)
sys.modules["torch"] = SimpleNamespace(cuda=cuda)
from migrator.io.spawn import end_on_request

with end_on_request():
    print("works", flush=True)
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            pass
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("works", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("code", "said", "status"),
    [(BUSY, "the GPU is done\n", "exited with 0"), (DEAF, "", "was killed by SIGKILL")],
)
def test_a_killed_process_may_finish_what_it_gave_to_the_gpu(
    code: str, said: str, status: str
) -> None:
    async def kill() -> str:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "works\n"
        ours, theirs = socket.socketpair()

        async def reap(_pid: int) -> str:
            return exit_status(child.wait())

        ended: list[str] = []
        process = ChildProcess("it", child.pid, Release, reap=reap, on_exit=ended.append)
        process.grace_s = 0.5 if code is DEAF else 30.0
        with theirs:
            await process.connect(ours)
            process.kill("no longer needed")
            process.kill("said twice")
            await process.wait()
        assert ended == ["no longer needed"]
        with child.stdout:
            assert child.stdout.read() == said
        return exit_status(child.wait())

    assert asyncio.run(kill()) == status


def test_a_connection_that_is_given_up_signals_no_other_process() -> None:
    """The handle of the process is closed then, and another process may get its number."""

    async def ended(_pid: int) -> str:
        return "ended"

    async def give_up(pid: int, other: int) -> None:
        ours, theirs = socket.socketpair()
        process = ChildProcess("it", pid, Release, reap=ended)
        with theirs:
            connecting = asyncio.create_task(process.connect(ours))
            await asyncio.sleep(0)
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            handle = os.pidfd_open(other)
            os.dup2(handle, process._pidfd)
            process.kill("given up")

    children = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    try:
        asyncio.run(give_up(children[0].pid, children[1].pid))
        with pytest.raises(subprocess.TimeoutExpired):
            children[1].wait(0.1)
    finally:
        for child in children:
            child.kill()
            child.wait()
