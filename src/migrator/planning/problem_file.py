"""The problem file, version 1: from JSON or YAML to the planning problem and back.

Shapes and ranges are pydantic's work; what ties several keys together (lengths, names, the
board's sizes and placements) is checked here. Whether a plan can exist is `feasible`'s work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, NoReturn, cast

from pydantic import Discriminator, Field, Tag

from migrator.core import catalogue
from migrator.core.catalogue import Board, Placement, find_placement, placements
from migrator.core.problem import (
    Charge,
    Initial,
    Instance,
    Kind,
    Problem,
    RetrainingConfiguration,
    RunningRetraining,
    Task,
    Tenant,
)
from migrator.io.data_file import read_data_file
from migrator.io.file_kind import PROBLEM
from migrator.io.strict import (
    CONFIGURATIONS,
    MAX_NUMBER,
    MODE,
    NUMBERS,
    SCENARIOS,
    Count,
    Entry,
    Location,
    Number,
    Position,
    by_size,
    listed,
    nearest,
    refuse,
    refuse_size,
    require_names,
    require_version,
    shown,
    validated,
)
from migrator.io.yaml_text import load_yaml

VERSION = 1
_MIN_SLOT_S = 1e-6
_Accuracy = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _numbers_or_scenarios(value: object) -> str | None:
    if not isinstance(value, list):
        return None
    return SCENARIOS if value and isinstance(value[0], list) else NUMBERS


_Received = Annotated[
    Annotated[list[Number], Tag(NUMBERS)] | Annotated[list[list[Number]], Tag(SCENARIOS)],
    Discriminator(_numbers_or_scenarios),
]


class _ProblemConfigurationEntry(Entry):
    name: str = Field(min_length=1, description="the configuration's name, as text, not empty")
    accuracy_post: _Accuracy = Field(description="the accuracy after it, a number from 0 to 1")
    slots: Annotated[dict[str, Count], Field(min_length=1)] = Field(
        description='slots it takes on each size, such as {"1": 150, "2": 80}'
    )
    memory_gib: Number = Field(
        default=0.0, description="the memory of its instance at least, in GiB, a number"
    )


class _ProblemRetrainingEntry(Entry):
    configurations: Annotated[list[_ProblemConfigurationEntry], Field(min_length=1)] = Field(
        description="a list of at least one {name, accuracy_post, slots}"
    )
    optional: bool = Field(
        default=False, description="true or false: whether the plan may leave the retraining out"
    )


def _mode_or_configurations(value: object) -> str:
    return CONFIGURATIONS if isinstance(value, dict) else MODE


_Retraining = Annotated[
    Annotated[Literal["required", "optional"], Tag(MODE)]
    | Annotated[_ProblemRetrainingEntry, Tag(CONFIGURATIONS)],
    Discriminator(_mode_or_configurations),
]


class _ProblemTenantEntry(Entry):
    name: str = Field(description="the tenant's name, as text that is not empty")
    received: _Received = Field(
        description="a list of requests per slot, or a list of such lists (scenarios)"
    )
    capability: dict[str, Number] = Field(
        min_length=1,
        description='requests per slot of one instance of each size, such as {"1": 60, "2": 110}',
    )
    accuracy_pre: _Accuracy = Field(description="the accuracy now, a number from 0 to 1")
    accuracy_post: _Accuracy | None = Field(
        default=None, description="the accuracy after retraining, a number from 0 to 1"
    )
    retraining_slots: Annotated[dict[str, Count], Field(min_length=1)] | None = Field(
        default=None,
        description='slots a retraining takes on each size, such as {"1": 150, "2": 80}, '
        "or null for no retraining",
    )
    overhead_s: Number = Field(
        description=f"the seconds a reconfiguration costs, a number from 0 to {MAX_NUMBER:g}"
    )
    min_gpcs: Count = Field(
        description="the GPCs that one of its instances always has at least, a positive integer"
    )
    retraining: _Retraining = Field(
        default="required",
        description='"required", or "optional" if the plan may leave the retraining out; or '
        "{configurations: [...]} for several ways to retrain, of which the plan chooses one",
    )
    requests_after: Number = Field(
        default=0.0,
        description="expected requests after the window that are answered with the accuracy gained "
        "by a completed retraining, a number of at least 0",
    )
    weight: float = Field(
        default=1.0,
        gt=0,
        le=MAX_NUMBER,
        allow_inf_nan=False,
        description="what its goodput counts in the objective, a finite number above 0",
    )
    floor: float = Field(
        default=0.0,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="the share of the expected requests of every slot that a plan answers if any "
        "plan can, a number from 0 to 1",
    )


class _RunningEntry(Entry):
    tenant: str = Field(description="the name of the tenant whose retraining runs")
    slots_left: Count = Field(description="the slots it still needs, a positive integer")
    configuration: str = Field(
        default="", description="the name of its configuration, if its tenant has several"
    )


class InstanceEntry(Entry):
    """An instance as both files write it."""

    start: Position = Field(description="its first memory slice, an integer of at least 0")
    gpcs: Count = Field(description="its size in GPCs, an integer of at least 1")
    task: str | None = Field(description='"TENANT/inference", "TENANT/retraining" or null')

    def instance(self, location: Location) -> Instance:
        """The instance; `location` is where this entry stands in its file."""
        return Instance(self.start, self.gpcs, self._task((*location, "task")))

    def _task(self, location: Location) -> Task | None:
        if self.task is None:
            return None
        try:
            return Task.parse(self.task)
        except ValueError:
            refuse(
                location,
                f"{shown(self.task)} is not a task",
                'write "TENANT/inference", "TENANT/retraining" or null',
            )


class _InitialEntry(Entry):
    instances: list[InstanceEntry] = Field(description="a list of instances, which may be empty")
    retrainings: list[_RunningEntry] = Field(
        description="a list of the retrainings that run, which may be empty"
    )


class _ProblemEntry(Entry):
    version: int = Field(description=f"the version of the format, {VERSION}")
    gpu: str = Field(description='the name of a board, such as "A100-40GB"')
    slot_s: float = Field(
        ge=_MIN_SLOT_S,
        le=MAX_NUMBER,
        allow_inf_nan=False,
        description=f"the seconds of a slot, a finite number above 0 (at least {_MIN_SLOT_S:g})",
    )
    slots: Count = Field(description="the number of slots of the window, a positive integer")
    charge: Literal["paper", "survivors"] = Field(description='"paper" or "survivors"')
    tenants: list[_ProblemTenantEntry] = Field(
        min_length=1, description="a list of at least one tenant object"
    )
    initial: _InitialEntry | None = Field(
        description='{"instances": [...], "retrainings": [...]} as held before slot 0, or null'
    )


def read_problem(path: Path) -> Problem:
    """The problem in a file; InputError names the file, the key and the remedy."""
    return read_data_file(path, parse_problem, PROBLEM)


def example_problem() -> dict[str, object]:
    """The content of the example that `migrator example` prints."""
    text = files("migrator.planning").joinpath("window.yaml").read_text("utf-8")
    return cast("dict[str, object]", load_yaml(text))


def parse_problem(data: object) -> Problem:
    """The problem in JSON that has been read already; InputError names the key and the remedy."""
    require_version(data, VERSION)
    file = validated(_ProblemEntry, data, "the problem")
    board = catalogue.board(file.gpu)
    require_names([tenant.name for tenant in file.tenants])
    return Problem(
        board=board,
        slot_s=file.slot_s,
        slots=file.slots,
        charge=Charge(file.charge),
        tenants=tuple(
            _tenant(entry, ("tenants", index), file, board)
            for index, entry in enumerate(file.tenants)
        ),
        initial=None if file.initial is None else _initial(file.initial, file, board),
    )


def problem_to_json(problem: Problem) -> dict[str, object]:
    """The problem as its file holds it; `parse_problem` gives the same problem back."""
    return {
        "version": VERSION,
        "gpu": problem.board.name,
        "slot_s": problem.slot_s,
        "slots": problem.slots,
        "charge": str(problem.charge),
        "tenants": [_tenant_to_json(tenant) for tenant in problem.tenants],
        "initial": None if problem.initial is None else _initial_to_json(problem.initial),
    }


def _tenant_to_json(tenant: Tenant) -> dict[str, object]:
    received = [list(row) for row in tenant.received]
    choices = _retraining_to_json(tenant)
    if tenant.requests_after:
        choices["requests_after"] = tenant.requests_after
    preferences = {"weight": (tenant.weight, 1.0), "floor": (tenant.floor, 0.0)}
    return {
        "name": tenant.name,
        "received": received[0] if len(received) == 1 else received,
        "capability": _by_size_to_json(tenant.capability),
        "accuracy_pre": tenant.accuracy_pre,
        "overhead_s": tenant.overhead_s,
        "min_gpcs": tenant.min_gpcs,
        **choices,
        **{name: value for name, (value, default) in preferences.items() if value != default},
    }


def _retraining_to_json(tenant: Tenant) -> dict[str, object]:
    """The keys about a tenant's retraining."""
    choices, optional = tenant.configurations, tenant.retraining_optional
    if any(choice.name for choice in choices):
        entries = [_configuration_to_json(choice) for choice in choices]
        return {"retraining": {"configurations": entries, "optional": optional}}
    mode: dict[str, object] = {"retraining": "optional"} if optional else {}
    if not choices:
        return {"accuracy_post": None, "retraining_slots": None, **mode}
    slots = _by_size_to_json(choices[0].slots) or None
    return {"accuracy_post": choices[0].accuracy, "retraining_slots": slots, **mode}


def _configuration_to_json(choice: RetrainingConfiguration) -> dict[str, object]:
    memory = {"memory_gib": choice.memory_gib} if choice.memory_gib else {}
    slots = _by_size_to_json(choice.slots)
    return {"name": choice.name, "accuracy_post": choice.accuracy, "slots": slots, **memory}


def _by_size_to_json(values: Mapping[int, float]) -> dict[str, float]:
    return {str(gpcs): value for gpcs, value in sorted(values.items())}


def _initial_to_json(initial: Initial) -> dict[str, object]:
    return {
        "instances": [instance_to_json(instance) for instance in initial.instances],
        "retrainings": [
            {"tenant": retraining.tenant, "slots_left": retraining.slots_left}
            | ({"configuration": retraining.configuration} if retraining.configuration else {})
            for retraining in initial.retrainings
        ],
    }


def _tenant(
    entry: _ProblemTenantEntry, location: Location, file: _ProblemEntry, board: Board
) -> Tenant:
    retraining = entry.retraining
    optional = retraining.optional if isinstance(retraining, _ProblemRetrainingEntry) else None
    return Tenant(
        name=entry.name,
        received=_received(entry, (*location, "received"), file.slots),
        capability=by_size(entry.capability, (*location, "capability"), board),
        accuracy_pre=entry.accuracy_pre,
        configurations=_configurations(entry, location, file, board),
        overhead_s=entry.overhead_s,
        min_gpcs=entry.min_gpcs,
        retraining_optional=retraining == "optional" if optional is None else optional,
        requests_after=entry.requests_after,
        weight=entry.weight,
        floor=entry.floor,
    )


def _received(
    entry: _ProblemTenantEntry, location: Location, slots: int
) -> tuple[tuple[float, ...], ...]:
    scenarios = []
    for where, numbers in _scenarios(entry.received, location):
        if len(numbers) != slots:
            refuse(
                where,
                f"the list has {len(numbers)} entries but slots is {slots}",
                "give one number per slot",
            )
        scenarios.append(tuple(numbers))
    return tuple(scenarios)


def _scenarios(
    received: list[float] | list[list[float]], location: Location
) -> Iterator[tuple[Location, list[float]]]:
    """Every scenario and where it stands; a plain list of numbers is the only scenario."""
    numbers = [row for row in received if not isinstance(row, list)]
    scenarios = [row for row in received if isinstance(row, list)]
    if not scenarios:
        yield location, numbers
    for index, scenario in enumerate(scenarios):
        yield (*location, index), scenario


def _configurations(
    entry: _ProblemTenantEntry, location: Location, file: _ProblemEntry, board: Board
) -> tuple[RetrainingConfiguration, ...]:
    if isinstance(entry.retraining, _ProblemRetrainingEntry):
        return _several(entry, entry.retraining, location, board)
    for key in ("accuracy_post", "retraining_slots"):
        if key not in entry.model_fields_set:
            give = _ProblemTenantEntry.model_fields[key].description
            refuse((*location, key), "the key is missing", f"give {give}")
    slots = entry.retraining_slots
    if entry.accuracy_post is None:
        running = () if file.initial is None else file.initial.retrainings
        if slots is not None or any(retraining.tenant == entry.name for retraining in running):
            refuse(
                (*location, "accuracy_post"),
                "null although the tenant retrains",
                "give the accuracy after retraining, a number from 0 to 1",
            )
        return ()
    lengths = {} if slots is None else by_size(slots, (*location, "retraining_slots"), board)
    return (RetrainingConfiguration(entry.accuracy_post, lengths),)


def _several(
    entry: _ProblemTenantEntry,
    retraining: _ProblemRetrainingEntry,
    location: Location,
    board: Board,
) -> tuple[RetrainingConfiguration, ...]:
    for key in ("accuracy_post", "retraining_slots"):
        if getattr(entry, key) is not None:
            refuse(
                (*location, key),
                "retraining.configurations are given as well",
                "leave it out: every configuration has its own",
            )
    listed_at = (*location, "retraining", "configurations")
    require_names([choice.name for choice in retraining.configurations], listed_at, "configuration")
    return tuple(
        _configuration(choice, (*listed_at, index), board)
        for index, choice in enumerate(retraining.configurations)
    )


def _configuration(
    entry: _ProblemConfigurationEntry, location: Location, board: Board
) -> RetrainingConfiguration:
    slots = by_size(entry.slots, (*location, "slots"), board)
    for gpcs in sorted(slots):
        memory_gib = board.memory_mib_of(gpcs) / 1024
        if memory_gib < entry.memory_gib:
            refuse(
                (*location, "slots", str(gpcs)),
                f"an instance of {gpcs} has {memory_gib:g} GiB and memory_gib is "
                f"{entry.memory_gib:g}",
                "leave the size out",
            )
    return RetrainingConfiguration(entry.accuracy_post, slots, entry.name, entry.memory_gib)


def _initial(entry: _InitialEntry, file: _ProblemEntry, board: Board) -> Initial:
    names = [tenant.name for tenant in file.tenants]
    instances = tuple(
        instance.instance(("initial", "instances", index))
        for index, instance in enumerate(entry.instances)
    )
    _require_placements(instances, board)
    _require_known_tasks(instances, names)
    _require_running(entry.retrainings, file.tenants, file.slots)
    _require_match(instances, entry.retrainings)
    return Initial(
        instances,
        tuple(
            RunningRetraining(retraining.tenant, retraining.slots_left, retraining.configuration)
            for retraining in entry.retrainings
        ),
    )


def _require_placements(instances: tuple[Instance, ...], board: Board) -> None:
    placed: list[Placement] = []
    for index, instance in enumerate(instances):
        location = ("initial", "instances", index)
        placement = _placement(instance, location, board)
        for other, earlier in enumerate(placed):
            if placement.overlaps(earlier):
                refuse(
                    location,
                    f"{instance} overlaps {instances[other]} of initial.instances[{other}]",
                    "remove one or correct its start",
                )
        placed.append(placement)


def _placement(instance: Instance, location: Location, board: Board) -> Placement:
    if instance.gpcs not in board.sizes:
        refuse_size((*location, "gpcs"), instance.gpcs, board)
    placement = find_placement(board, instance.start, instance.gpcs)
    if placement is None:
        starts = [place.start for place in placements(board) if place.gpcs == instance.gpcs]
        refuse(
            (*location, "start"),
            f"{board.name} has no {instance.gpcs}-GPC instance at slice {instance.start}",
            f"use {listed(starts)}",
        )
    return placement


def _require_known_tasks(instances: tuple[Instance, ...], names: list[str]) -> None:
    for index, instance in enumerate(instances):
        if instance.task is not None and instance.task.tenant not in names:
            location = ("initial", "instances", index, "task")
            _refuse_tenant(location, instance.task.tenant, names)


def _require_running(
    retrainings: list[_RunningEntry], tenants: list[_ProblemTenantEntry], slots: int
) -> None:
    seen: set[str] = set()
    names = [tenant.name for tenant in tenants]
    for index, running in enumerate(retrainings):
        location = ("initial", "retrainings", index)
        if running.tenant not in names:
            _refuse_tenant((*location, "tenant"), running.tenant, names)
        if running.tenant in seen:
            refuse(
                (*location, "tenant"),
                f"{shown(running.tenant)} is listed twice",
                "list every running retraining once",
            )
        if running.slots_left > slots:
            refuse(
                (*location, "slots_left"),
                f"the window of {slots} slots is too short for the {running.slots_left} left",
                "raise slots",
            )
        _require_configuration(running, tenants[names.index(running.tenant)], location)
        seen.add(running.tenant)


def _require_configuration(
    running: _RunningEntry, tenant: _ProblemTenantEntry, location: Location
) -> None:
    retraining = tenant.retraining
    several = retraining.configurations if isinstance(retraining, _ProblemRetrainingEntry) else []
    names = [choice.name for choice in several]
    if running.configuration in (names or [""]):
        return
    location = (*location, "configuration")
    if not names:
        refuse(location, f"{tenant.name} has no configurations with names", "leave it out")
    meant = nearest(running.configuration, names)
    remedy = f"did you mean {shown(meant)}?" if meant else f"name one of {listed(names)}"
    wrong = f"{tenant.name} has no configuration {shown(running.configuration)}"
    refuse(location, wrong, remedy)


def _refuse_tenant(location: Location, name: str, names: list[str]) -> NoReturn:
    meant = nearest(name, names)
    remedy = f"did you mean {shown(meant)}?" if meant else f"name one of {listed(names)}"
    refuse(location, f"there is no tenant {shown(name)}", remedy)


def _require_match(instances: tuple[Instance, ...], retrainings: list[_RunningEntry]) -> None:
    """Every running retraining has one instance, and every retraining instance runs one."""
    listed_tenants = {retraining.tenant for retraining in retrainings}
    held: dict[str, int] = {}
    for index, instance in enumerate(instances):
        if instance.task is None or instance.task.kind is not Kind.RETRAINING:
            continue
        tenant = instance.task.tenant
        location = ("initial", "instances", index, "task")
        if tenant in held:
            refuse(
                location,
                f"{instance.task} already has initial.instances[{held[tenant]}]",
                "give a retraining one instance",
            )
        if tenant not in listed_tenants:
            refuse(
                location,
                f"{instance.task} is not in initial.retrainings",
                "add it there with its slots_left",
            )
        held[tenant] = index
    for index, running in enumerate(retrainings):
        if running.tenant not in held:
            refuse(
                ("initial", "retrainings", index, "tenant"),
                f"no instance has the task {running.tenant}/retraining",
                "add it to initial.instances",
            )


def instance_to_json(instance: Instance) -> dict[str, object]:
    """The instance as both files write it."""
    task = None if instance.task is None else str(instance.task)
    return {"start": instance.start, "gpcs": instance.gpcs, "task": task}
