"""Lets tests import what they share as `support`; the same examples are drawn in every run.

A run that fails by chance tells the next committer nothing about their change. To search for
new examples, and for more of them: `HYPOTHESIS_PROFILE=explore make test`.
"""

import asyncio
import gc
import inspect
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import httpx._transports.default as httpx_transport
import pytest
import typer.testing
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, max_examples=30)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

TESTS = Path(__file__).parent
NO_TESTS = ("conftest.py", "golden", "support", "__pycache__")
HEAVY = (
    *("tests/learn/", "tests/serve/test_workers_torch.py", "tests/load/test_load_samples.py"),
    "tests/cli/test_bring_your_model.py",
)
"""One worker runs all of these: importing transformers, timm and torchvision takes seconds."""
FIRST = (*HEAVY, "tests/cluster/fleet/test_cluster_live.py")
"""A parallel run begins with these: they take longest."""
COMPUTING: dict[str, float] = {
    "profiling/test_profiling_run": 21,
    "plan/test_survivors": 18,
    "gpu/test_gpu_crashes": 18,
    "test_cli_runs": 17,
    "cluster/placement/test_place": 14,
    "cluster/placement/test_cluster_workers": 12,
    "profiling/test_profiling_mig": 9,
    "cli/test_documented_runs": 9,
    "io/test_database": 8,
    "reproduce/test_map": 8,
    "gpu/test_gpu_drivers_benchmark": 8,
    "plan/test_kernels": 8,
    "gpu/test_gpu_mps": 7,
    "test_cli": 7,
    "cli/test_cluster_verbs": 7,
    "cli/test_without_extras": 7,
    "forecast/test_forecast_verbs": 7,
    "plan/test_check": 6,
}
WAITING: dict[str, float] = {
    "cluster/fleet/test_agent": 37,
    "dashboard/test_page_browser": 35,
    "live/test_faults_processes": 34,
    "live/test_retrained_again": 28,
    "live/test_labels_at_start": 28,
    "load/test_load": 27,
    "live/test_faults_disk": 25,
    "live/test_standbys_live": 24,
    "live/test_trainings": 22,
    "report/test_other_pages_browser": 22,
    "live/test_faults_kills": 21,
    "report/test_pages_browser": 20,
    "serve/test_worker_losses": 20,
    "live/test_resized_training": 18,
    "cluster/fleet/test_head": 16,
    "live/test_faults_flood": 16,
    "live/test_faults_policy": 13,
    "serve/test_hostile_requests": 12,
    "live/test_actions_live": 11,
    "live/test_daemon": 10,
    "dashboard/test_routes": 10,
    "serve/test_grpc": 10,
    "cluster/fleet/test_gateway": 9,
    "cli/test_load_verb": 9,
    "live/test_metrics_of_run": 6,
    "serve/test_api_faults": 6,
    "control/test_controller": 5,
    "cluster/fleet/test_watch": 4,
    "live/test_shared_files": 3,
}
"""About how many seconds the longest files take: those that compute, and those that wait for as
long as they compute, or longer."""
OTHERS_S = 1.3
"""Other files, in the mean; they compute."""

# libraries with threads of their own wait by computing, beside other workers for longer
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
gc.disable()  # until all tests are collected

sys.path.insert(0, str(TESTS))
# at the end: benchmarks are scripts that find each other by plain names
sys.path += [str(TESTS.parent / "benchmarks"), str(TESTS.parent / "benchmarks" / "gpu")]

# a process of a user builds the verbs once, a test that calls several verbs also
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]
# a client of httpx reads all certificates, which takes longer than several requests to a daemon
_context = httpx_transport.create_ssl_context  # type: ignore[attr-defined]  # imported there
httpx_transport.create_ssl_context = cache(_context)  # type: ignore[attr-defined]  # the same

pytest_plugins = ["support.browser", "support.nvidia_programs"]  # fixtures for several folders


def pytest_configure(config: pytest.Config) -> None:
    """Let each worker begin to collect in another folder: pytest rewrites every file once."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and [Path(each).resolve() for each in config.args] == [TESTS]:
        parts = sorted(str(each) for each in TESTS.iterdir() if each.name not in NO_TESTS)
        first = len(parts) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args[:] = parts[first:] + parts[:first]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let some workers wait while the others compute, at any time; long files come first."""
    files = sorted({item.path.relative_to(TESTS.parent).as_posix() for item in items})
    rank = {each: -1.0 for each in files if each.startswith(FIRST)}
    computing, waiting = ({f"tests/{e}.py": s for e, s in d.items()} for d in (COMPUTING, WAITING))
    for each in files:
        if each not in rank and each not in waiting:
            computing.setdefault(each, OTHERS_S)
    for group in (waiting, computing):
        total, begins = sum(group.values()), 0.0
        for each, seconds in group.items():
            rank.setdefault(each, begins / total)
            begins += seconds

    def key(item: pytest.Item) -> tuple[float, str]:
        file = item.path.relative_to(TESTS.parent).as_posix()
        return rank[file], file

    items.sort(key=key)


def pytest_collection_finish() -> None:
    """Never search what was imported for garbage: there are a million objects."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile all kernels before there are workers: each of them would compile the same ones."""
    from migrator.core.problem import Charge
    from migrator.plan.solve import ready
    from migrator.simulate import tenant

    # a note that they are compiled is older than sources that were checked out again
    ready(Charge.SURVIVORS)  # needs the kernels of the other charge too
    tenant.ready()
    gc.enable()  # this process collects no tests


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A worker runs a whole file, as with `--dist loadfile`, or everything that is HEAVY."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "heavy" if file.startswith(HEAVY) else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in an event loop of its own; leave all others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 600.0))
    return True
