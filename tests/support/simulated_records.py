"""Records of small simulated runs."""

from __future__ import annotations

from migrator.core.scenario import Scenario
from migrator.policies.policy import Policy
from migrator.records.rows import RunRecords, UnitRecord
from migrator.records.simulated import BEGAN_S
from migrator.simulation.run import run
from support.scenarios import Flat

Span = tuple[float, float, str | None, str]
"""From, to, tenant and state of a unit."""


def recorded(this: Scenario, policy: Policy) -> RunRecords:
    """The records of a simulated run."""
    records = run(this, policy, Flat(), record=True).records
    assert records is not None
    return records


def states(records: RunRecords, at_s: float) -> set[tuple[int | None, float, str | None, str]]:
    """Start, GPCs, tenant and state of all units at a time of the run."""
    present = [e for e in records.units if e.from_s - BEGAN_S <= at_s < (e.to_s or 0) - BEGAN_S]
    return {(unit.start, unit.gpcs, unit.tenant, str(unit.state)) for unit in present}


def spans(records: RunRecords, unit: str) -> list[Span]:
    """The states of the units at a place that lasted, in order."""

    def span(row: UnitRecord) -> Span:
        assert row.to_s is not None
        ends = row.from_s - BEGAN_S, row.to_s - BEGAN_S
        return round(ends[0], 3), round(ends[1], 3), row.tenant, str(row.state)

    rows = sorted(records.units, key=lambda row: row.from_s)
    spans = [span(row) for row in rows if row.unit.partition("#")[0] == unit]
    return [times for times in spans if times[1] > times[0]]
