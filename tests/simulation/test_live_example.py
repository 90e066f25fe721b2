"""The live example also simulates, and planning is worth it there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from migrator.records.outcome import RunOutcome
from migrator.simulation.compare import SimulationJob
from migrator.workload.file import read_scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "live.yaml"


def run(policy: str) -> RunOutcome:
    job = SimulationJob(partial(read_scenario, EXAMPLE), policy, None, None, None, False)
    return job.run()


def test_migrator_is_ahead_of_every_static_split() -> None:
    planned = run("migrator")
    assert len(planned.windows) == 3
    # labels of the first window are what the second one learns from
    assert [tenant.retrained_s for tenant in planned.windows[0].tenants] == [None, None]
    assert None not in [tenant.retrained_s for tenant in planned.windows[1].tenants]
    for split in ("static-6-1", "static-5-2", "static-4-3", "static-3-4"):
        assert planned.tally.goodput > 1.02 * run(split).tally.goodput, split
