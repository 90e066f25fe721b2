"""The plan as JSON: what `--json` prints, and the same read back for checking."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from migrator.core.problem import Allocation, Claims, Plan, Retraining
from migrator.io.data_file import read_json_file
from migrator.io.file_kind import PLAN
from migrator.io.strict import Count, Entry, Number, Position, validated
from migrator.planning.problem_file import InstanceEntry, instance_to_json

# A charge longer than a slot can push goodput below zero, so these may be negative.
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class _PlanRetrainingEntry(Entry):
    tenant: str = Field(description="the name of the tenant that retrains")
    start: Position = Field(description="its first slot, an integer of at least 0")
    end: Count = Field(description="the slot after its last one, a positive integer")
    gpcs: Count = Field(description="the size of its instance in GPCs, a positive integer")
    configuration: str = Field(
        default="", description="the name of its configuration, as text; left out for the only one"
    )


class _SlotEntry(Entry):
    instances: list[InstanceEntry] = Field(description="the list of instances in this slot")


class _PlanEntry(Entry):
    goodput: _Finite = Field(description="the plan's goodput, a finite number")
    later_goodput: _Finite = Field(
        default=0.0, description="goodput after the window that its retrainings add, a number"
    )
    upper_bound: _Finite = Field(
        description="the certified bound on goodput and later_goodput, a finite number"
    )
    gap: _Finite = Field(
        default=math.nan, description="the certified relative gap, a finite number"
    )
    solver: str = Field(description="the name of the solver, as text")
    solve_s: Number = Field(description="the seconds the solver took, a number of at least 0")
    retrainings: list[_PlanRetrainingEntry] = Field(
        description="the list of retrainings, which may be empty"
    )
    slots: list[_SlotEntry] = Field(description='a list of {"instances": [...]}, one per slot')
    weighting: _Finite = Field(
        default=0.0, description="what weights add to the objective, a finite number"
    )
    penalty: _Finite = Field(
        default=0.0,
        description="what requests short of floors take from the objective, a finite number",
    )
    # What our own output may carry beside the plan itself.
    charge: Any = None
    preinitialization: Any = None
    predicted_goodput: Any = None
    requests_short: Any = None
    status: str = Field(default="", description="proven optimal, within x% or time limit, as text")


def read_plan(path: Path) -> Plan:
    """The plan in a file; InputError names the file, the key and the remedy."""
    return read_json_file(path, parse_plan, PLAN)


def read_claims(path: Path) -> Claims:
    """The gap and the status that a plan file states."""
    return read_json_file(path, parse_claims, PLAN)


def parse_claims(data: object) -> Claims:
    """The gap and the status in JSON that has been read already."""
    file = validated(_PlanEntry, data, "the plan")
    return Claims(None if math.isnan(file.gap) else file.gap, file.status or None)


def parse_plan(data: object) -> Plan:
    """The plan in JSON that has been read already; whether it keeps the rules is not asked here."""
    file = validated(_PlanEntry, data, "the plan")
    return Plan(
        goodput=file.goodput,
        upper_bound=file.upper_bound,
        solver=file.solver,
        solve_s=file.solve_s,
        retrainings=tuple(
            Retraining(
                retraining.tenant,
                retraining.start,
                retraining.end,
                retraining.gpcs,
                retraining.configuration,
            )
            for retraining in file.retrainings
        ),
        slots=tuple(_allocation(entry, index) for index, entry in enumerate(file.slots)),
        later_goodput=file.later_goodput,
        weighting=file.weighting,
        penalty=file.penalty,
    )


def plan_to_json(plan: Plan) -> dict[str, object]:
    """The plan as `--json` prints it; `parse_plan` gives the same plan back."""
    preferences = {"weighting": plan.weighting, "penalty": plan.penalty}
    return {
        "goodput": plan.goodput,
        "upper_bound": plan.upper_bound,
        "gap": plan.gap,
        "solver": plan.solver,
        "solve_s": plan.solve_s,
        "retrainings": [_retraining_to_json(retraining) for retraining in plan.retrainings],
        "slots": [
            {"instances": [instance_to_json(instance) for instance in slot.instances]}
            for slot in plan.slots
        ],
        "status": plan.status,
        "later_goodput": plan.later_goodput,
        **{name: value for name, value in preferences.items() if value},
    }


def _retraining_to_json(retraining: Retraining) -> dict[str, object]:
    named = {"configuration": retraining.configuration} if retraining.configuration else {}
    return {
        "tenant": retraining.tenant,
        "start": retraining.start,
        "end": retraining.end,
        "gpcs": retraining.gpcs,
        **named,
    }


def _allocation(entry: _SlotEntry, index: int) -> Allocation:
    return Allocation(
        tuple(
            instance.instance(("slots", index, "instances", position))
            for position, instance in enumerate(entry.instances)
        )
    )
