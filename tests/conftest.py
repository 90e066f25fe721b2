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
_LONG_COMPUTING = (
    *("profiling/test_profiling_run", "live/test_trainings", "plan/test_survivors"),
    *("gpu/test_gpu_crashes", "report/test_other_pages_browser", "dashboard/test_page_browser"),
    *("test_cli_runs", "cluster/fleet/test_head", "cluster/placement/test_cluster_workers"),
    *("report/test_pages_browser", "cluster/placement/test_place", "io/test_database"),
    *("profiling/test_profiling_mig", "advise/test_trial", "api/test_functions"),
    *("cli/test_documented_runs", "control/test_policy_process", "plan/test_kernels"),
)
_LONG_WAITING = (
    *(f"live/test_{each}" for each in ("retrained_again", "faults_disk", "faults_kills")),
    *("cluster/fleet/test_agent", "live/test_faults_processes", "live/test_standbys_live"),
    *("live/test_labels_at_start", "load/test_load", "serve/test_worker_losses"),
    *("live/test_daemon", "live/test_faults_flood", "cluster/fleet/test_gateway"),
    *("live/test_resized_training", "live/test_actions_live", "live/test_faults_policy"),
    *("serve/test_hostile_requests", "plan/test_exact", "cli/test_load_verb"),
)
"""Files of ten seconds or more, the longest first."""
LONGEST = (
    *(*HEAVY, "tests/cluster/fleet/test_cluster_live.py"),
    *(f"tests/{e}.py" for pair in zip(_LONG_COMPUTING, _LONG_WAITING, strict=True) for e in pair),
)
"""Parallel runs begin with these files, so that no worker has a long one when the others end."""
WAITING = ("live", "cluster", "cli", "dashboard")
"""Folders whose tests wait for other processes; their files are spread over a parallel run."""

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
    """Begin with long files, then mix those that wait with those that compute."""
    files = sorted({item.path.relative_to(TESTS.parent).as_posix() for item in items})
    rank: dict[str, float] = {}
    for number, start in enumerate(LONGEST):
        rank |= {each: number - len(LONGEST) for each in files if each.startswith(start)}
    for waits in (True, False):
        group = [e for e in files if e not in rank and (e.split("/")[1] in WAITING) == waits]
        rank |= {each: place / len(group) for place, each in enumerate(group)}

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
