"""Lets tests import what they share as `support`; the same examples are drawn in every run.

A run that fails by chance tells the next committer nothing about their change. To search for
new examples, and for more of them: `HYPOTHESIS_PROFILE=explore make test`.
"""

import asyncio
import inspect
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, max_examples=50)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

TESTS = Path(__file__).parent
SLOW_FOLDERS = ("learn", "live", "cluster", "plan", "cli", "test_cli_runs.py", "report", "gpu")
"""Folders, and one file, with the longest files, which parallel runs begin with."""
HEAVY = ("tests/learn/", "tests/serve/test_workers_torch.py", "tests/cli/test_bring_your_model.py")
"""One worker runs all of these: importing transformers, timm and torchvision takes seconds."""

sys.path.insert(0, str(TESTS))
# at the end: benchmarks are scripts that find each other by plain names
sys.path += [str(TESTS.parent / "benchmarks"), str(TESTS.parent / "benchmarks" / "gpu")]

# a process of a user builds the verbs once, a test that calls several verbs also
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

pytest_plugins = ["support.browser", "support.nvidia_programs"]  # fixtures for several folders


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with slow files, so that short ones keep all workers busy until the end."""

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parts[0]
        return SLOW_FOLDERS.index(folder) if folder in SLOW_FOLDERS else len(SLOW_FOLDERS)

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile all kernels before there are workers: each of them would compile the same ones."""
    from migrator.core.problem import Charge
    from migrator.plan.solve import ready
    from migrator.simulate import tenant

    # a note that they are compiled is older than sources that were checked out again
    ready(Charge.SURVIVORS)  # needs the kernels of the other charge too
    tenant.ready()


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
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 120.0))
    return True
