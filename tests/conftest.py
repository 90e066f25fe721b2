"""Lets tests import what they share as `support`; the same examples are drawn in every run.

A run that fails by chance tells the next committer nothing about their change. To search for
new examples, and for more of them: `HYPOTHESIS_PROFILE=explore make test`.
"""

import asyncio
import inspect
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

TESTS = Path(__file__).parent
SLOW_FOLDERS = ("live", "cluster", "plan", "cli", "learn", "report")
"""Folders with the longest files, which parallel runs begin with."""

sys.path.insert(0, str(TESTS))
# at the end: benchmarks are scripts that find each other by plain names
sys.path += [str(TESTS.parent / "benchmarks"), str(TESTS.parent / "benchmarks" / "gpu")]

pytest_plugins = ["support.nvidia_programs"]  # the fixtures `state` and `programs`


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with slow files, so that short ones keep all workers busy until the end."""

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parts[0]
        return SLOW_FOLDERS.index(folder) if folder in SLOW_FOLDERS else len(SLOW_FOLDERS)

    items.sort(key=rank)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in an event loop of its own; leave all others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 120.0))
    return True
