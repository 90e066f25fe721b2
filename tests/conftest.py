"""Every run draws the same examples, kernels are compiled once, and `async def` tests run.

A run that fails by chance tells the next committer nothing about their change. To search for
new examples, and for more of them: `HYPOTHESIS_PROFILE=explore make test`.
"""

import asyncio
import inspect
import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, max_examples=30)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

ASYNC_LIMIT_S = 600.0

# libraries with threads of their own wait by computing, beside other workers for longer
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

pytest_plugins = ["support.browser", "support.nvidia_programs"]  # fixtures for several folders


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile all kernels before there are workers: each of them would compile the same ones."""
    from migrator.core.problem import Charge
    from migrator.planning.planners import ready
    from migrator.simulation import tenant

    ready(Charge.SURVIVORS)  # needs the kernels of the other charge too
    tenant.ready()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in an event loop of its own; leave all others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    parameters = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), ASYNC_LIMIT_S))
    return True
