"""What metrics look at: the parts of a daemon, read only when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.control.executor import Executor
from migrator.gpu.driver import Gpu, Place
from migrator.live.forecast_error import ForecastError
from migrator.live.goodput import Goodput
from migrator.live.tallies import Tallies
from migrator.live.tenant_run import TenantRun
from migrator.live.window_clock import WindowClock

if TYPE_CHECKING:
    from migrator.live.daemon import Daemon


@dataclass(frozen=True)
class Watched:
    """One running scenario."""

    about: Mapping[str, str]
    """scenario, policy, forecaster, driver, board."""
    folder: Path
    """Where models, labels and records are written."""
    clock: WindowClock
    tenants: Mapping[str, TenantRun]
    executor: Executor
    gpu: Gpu
    numbers: Mapping[Place, int]
    """Of instances, as the driver gives them."""
    tallies: Tallies
    goodput: Goodput
    errors: ForecastError
    unused: Callable[[], Mapping[str, int]]
    """Plans that could not be used."""
    prepared: Callable[[str], int]
    """A tenant's workers that wait for an instance."""


def watched(daemon: Daemon) -> Watched:
    """What there is to see of a daemon whose parts are open."""
    serving = daemon.serving
    scenario = serving.live.scenario
    return Watched(
        about={
            "scenario": scenario.name,
            "policy": scenario.policy,
            "forecaster": scenario.forecaster,
            "driver": serving.driver,
            "board": scenario.board.name,
        },
        folder=serving.folder,
        clock=daemon.clock,
        tenants=daemon.tenants,
        executor=daemon.executor,
        gpu=daemon.parts.gpu,
        numbers=daemon.parts.lane.numbers,
        tallies=daemon.tallies,
        goodput=daemon.goodput,
        errors=daemon.forecast_error,
        unused=lambda: daemon.thinking.unused,
        prepared=daemon.parts.workers.prepared,
    )
