"""The judge of every plan: each rule of the problem, and the goodput recomputed.

It shares nothing with the planners. What is legal follows from the board's plain profiles, and
what a plan is worth from its slots alone, in plain Python, so a planner's error cannot hide here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, pairwise

from migrator.core.catalogue import MigProfile
from migrator.core.errors import PlanError
from migrator.core.problem import (
    PROVEN,
    TIME_LIMIT,
    Charge,
    Claims,
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    RetrainingConfiguration,
    Task,
    Tenant,
)

TOLERANCE = 1e-6
"""How far claimed numbers may be from recomputed ones, relative and absolute."""

_SHOWN = 3
"""How many violations an error spells out."""

_Spot = tuple[int, int]
"""Start and GPCs: with its tenant, what makes an instance the same in the next slot."""


def check_plan(problem: Problem, plan: Plan) -> float:
    """The recomputed goodput of a plan that keeps every rule; PlanError for any other."""
    broken = violations(problem, plan)
    if not broken:
        return goodput_of(problem, plan)
    more = f"; and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
    rules = "1 rule" if len(broken) == 1 else f"{len(broken)} rules"
    raise PlanError(f"the plan breaks {rules}: {'; '.join(broken[:_SHOWN])}{more}")


def violations(problem: Problem, plan: Plan, claims: Claims | None = None) -> list[str]:
    """Every broken rule, one sentence each; a plan that may be used has none.

    The claimed goodput is compared only where the slots are legal: nothing else has a goodput.
    `claims` must follow from the plan's goodput and bound. Whether the bound itself holds is
    not asked here.
    """
    broken = [*_slot_count(problem, plan), *_slot_rules(problem, plan)]
    for tenant in problem.tenants:
        broken += _retraining_rules(problem, plan, tenant)
    worth = _number_claims(plan) if broken else _worth_claims(problem, plan)
    broken += [*_retraining_claims(problem, plan), *worth]
    return broken if claims is None else [*broken, *_quality_claims(plan, claims)]


def valued(problem: Problem, plan: Plan) -> Plan:
    """A plan that keeps the rules, with what its slots are worth."""
    goodput = {tenant.name: list(_goodput(problem, plan, tenant)) for tenant in problem.tenants}
    later = {tenant.name: _later_goodput(problem, plan, tenant) for tenant in problem.tenants}
    return replace(
        plan,
        goodput=math.fsum(chain.from_iterable(goodput.values())),
        later_goodput=math.fsum(later.values()),
        weighting=math.fsum(
            (tenant.weight - 1) * worth
            for tenant in problem.tenants
            if tenant.weight != 1
            for worth in (*goodput[tenant.name], later[tenant.name])
        ),
        penalty=problem.penalty * math.fsum(requests_short(problem, plan).values()),
    )


def requests_short(problem: Problem, plan: Plan) -> dict[str, float]:
    """Tenant with a floor -> expected requests that the plan's slots are short of it.

    A charge that takes more than a slot can serve makes it short of no more than the floor.
    """
    return {
        tenant.name: math.fsum(
            max(0.0, tenant.floor * _expected_throughput(tenant, slot, math.inf) - max(0.0, served))
            for slot, served in enumerate(_served(problem, plan, tenant, ()))
        )
        for tenant in problem.tenants
        if tenant.floor > 0
    }


def goodput_of(
    problem: Problem, plan: Plan, without: Mapping[str, Sequence[float]] | None = None
) -> float:
    """The goodput of a plan that keeps the rules, recomputed from its slots.

    `without`: per tenant and slot, a share of the slot in which none of its instances serves,
    whatever the charge says.
    """
    cut = without or {}
    return math.fsum(
        worth
        for tenant in problem.tenants
        for worth in _goodput(problem, plan, tenant, cut.get(tenant.name, ()))
    )


# What a plan is worth.


def _goodput(
    problem: Problem, plan: Plan, tenant: Tenant, without: Sequence[float] = ()
) -> Iterator[float]:
    """The goodput of a tenant, slot by slot."""
    end = _completion(problem, plan, tenant)
    after = _accuracy_after(problem, plan, tenant)
    for slot, served in enumerate(_served(problem, plan, tenant, without)):
        yield (after if slot >= end else tenant.accuracy_pre) * served


def _served(
    problem: Problem, plan: Plan, tenant: Tenant, without: Sequence[float]
) -> Iterator[float]:
    """The requests of a tenant that are answered, slot by slot."""
    limits = _limits(plan, tenant, without)
    charged = _CAPABILITIES[problem.charge](problem, plan, tenant)
    for slot, (capability, limit) in enumerate(zip(charged, limits, strict=True)):
        yield _expected_throughput(tenant, slot, min(capability, limit))


def _later_goodput(problem: Problem, plan: Plan, tenant: Tenant) -> float:
    """The expected goodput after the window that a completed retraining adds."""
    if _completion(problem, plan, tenant) > problem.slots:
        return 0.0
    gained = _accuracy_after(problem, plan, tenant) - tenant.accuracy_pre
    return tenant.requests_after * gained


def _limits(plan: Plan, tenant: Tenant, without: Sequence[float]) -> Iterator[float]:
    """Slot by slot, what its instances can serve in the rest of the slot."""
    for slot, spots in enumerate(_spots_by_slot(plan, tenant, Kind.INFERENCE)):
        share = without[slot] if slot < len(without) else 0.0
        whole = math.fsum(tenant.capability[gpcs] for _, gpcs in spots) if share else math.inf
        yield (1 - share) * whole


def _completion(problem: Problem, plan: Plan, tenant: Tenant) -> float:
    """The first slot that has the new accuracy; infinite where nothing is retrained."""
    left = problem.slots_left(tenant)
    if left is not None:
        return left
    return max(_held(plan, tenant), default=math.inf) + 1


def _accuracy_after(problem: Problem, plan: Plan, tenant: Tenant) -> float:
    """The accuracy after the tenant's retraining; the present one where nothing is retrained."""
    running = problem.running(tenant)
    if running is not None:
        return tenant.configuration(running.configuration).accuracy
    chosen = _chosen_configuration(plan, tenant)
    return tenant.accuracy_pre if chosen is None else chosen.accuracy


def _chosen_configuration(plan: Plan, tenant: Tenant) -> RetrainingConfiguration | None:
    """The configuration that the plan names, as slots do not show it; the only one needs no name.

    None where the tenant has no such configuration.
    """
    if len(tenant.configurations) == 1 and not tenant.configurations[0].name:
        return tenant.configurations[0]
    names = {
        retraining.configuration
        for retraining in plan.retrainings
        if retraining.tenant == tenant.name
    }
    return next((choice for choice in tenant.configurations if choice.name in names), None)


def _expected_throughput(tenant: Tenant, slot: int, capability: float) -> float:
    served = [min(scenario[slot], capability) for scenario in tenant.received]
    return math.fsum(served) / len(served)


def _paper_capabilities(problem: Problem, plan: Plan, tenant: Tenant) -> Iterator[float]:
    """Slot by slot under `paper`; below zero where the overhead outlasts the slot."""
    lost = tenant.overhead_s / problem.slot_s
    before = _sizes(_spots(_before(problem, plan), tenant, Kind.INFERENCE))
    spots_before: list[_Spot] | None = None
    capability = 0.0
    for spots in _spots_by_slot(plan, tenant, Kind.INFERENCE):
        if spots is spots_before:
            yield capability
            continue
        sizes, spots_before = _sizes(spots), spots
        capability = math.fsum(tenant.capability[gpcs] for gpcs in sizes)
        yield capability if sizes == before else capability - lost * capability / len(sizes)
        before = sizes


def _survivors_capabilities(problem: Problem, plan: Plan, tenant: Tenant) -> Iterator[float]:
    """Slot by slot under `survivors`; an instance lives on through either task of its tenant."""
    cold_slots = tenant.overhead_s / problem.slot_s
    ages = dict.fromkeys(_spots(_before(problem, plan), tenant, *Kind), math.inf)
    serving = _spots_by_slot(plan, tenant, Kind.INFERENCE)
    for held, serves in zip(_spots_by_slot(plan, tenant, *Kind), serving, strict=True):
        ages = {spot: ages[spot] + 1 if spot in ages else 0 for spot in held}
        yield math.fsum(
            tenant.capability[gpcs] * min(max(ages[start, gpcs] + 1 - cold_slots, 0.0), 1.0)
            for start, gpcs in serves
        )


_CAPABILITIES: Mapping[Charge, Callable[[Problem, Plan, Tenant], Iterator[float]]] = {
    Charge.PAPER: _paper_capabilities,
    Charge.SURVIVORS: _survivors_capabilities,
}


def _before(problem: Problem, plan: Plan) -> tuple[Instance, ...]:
    """What slot 0 is compared with; where nothing is known, slot 0 itself, so it costs nothing."""
    if problem.initial is not None:
        return problem.initial.instances
    return plan.slots[0].instances if plan.slots else ()


def _spots(instances: Iterable[Instance], tenant: Tenant, *kinds: Kind) -> list[_Spot]:
    return [
        (instance.start, instance.gpcs)
        for instance in instances
        if instance.task is not None
        and instance.task.tenant == tenant.name
        and instance.task.kind in kinds
    ]


def _spots_by_slot(plan: Plan, tenant: Tenant, *kinds: Kind) -> Iterator[list[_Spot]]:
    """Slot by slot; the same list again where a slot has the very allocation of the one before."""
    before, spots = None, list[_Spot]()
    for allocation in plan.slots:
        if allocation is not before:
            before, spots = allocation, _spots(allocation.instances, tenant, *kinds)
        yield spots


def _sizes(spots: Iterable[_Spot]) -> list[int]:
    return sorted(gpcs for _, gpcs in spots)


def _held(plan: Plan, tenant: Tenant) -> dict[int, list[_Spot]]:
    """Slot -> what the retraining of `tenant` holds there, without the slots it holds nothing."""
    slots = enumerate(_spots_by_slot(plan, tenant, Kind.RETRAINING))
    return {slot: spots for slot, spots in slots if spots}


# The rules of one slot.


def _slot_count(problem: Problem, plan: Plan) -> Iterator[str]:
    if len(plan.slots) != problem.slots:
        yield f"the number of slots is {len(plan.slots)}, but the window has {problem.slots}"


def _slot_rules(problem: Problem, plan: Plan) -> Iterator[str]:
    legal = None
    for slot, allocation in enumerate(plan.slots):
        if allocation is legal:
            continue  # the very allocation of the slot before, which keeps the rules
        broken = list(_rules_of_slot(problem, slot, allocation.instances))
        legal = None if broken else allocation
        yield from broken


def _rules_of_slot(problem: Problem, slot: int, instances: tuple[Instance, ...]) -> Iterator[str]:
    profiles = problem.board.plain_profiles
    yield from _illegal_placements(problem, profiles, slot, instances)
    yield from _overlaps(profiles, slot, instances)
    yield from _too_many_gpcs(problem, slot, instances)
    yield from _unknown_tenants(problem, slot, instances)
    for tenant in problem.tenants:
        yield from _inference_rules(tenant, slot, instances)


def _illegal_placements(
    problem: Problem,
    profiles: Mapping[int, MigProfile],
    slot: int,
    instances: tuple[Instance, ...],
) -> Iterator[str]:
    board = problem.board.name
    for instance in instances:
        profile = profiles.get(instance.gpcs)
        if profile is None:
            sizes = ", ".join(map(str, profiles))
            yield f"slot {slot}: {_named(instance)}: {board} has only the sizes {sizes}"
        elif instance.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            size = f"{instance.gpcs}g"
            yield f"slot {slot}: {_named(instance)}: {size} starts only at {starts} on {board}"


def _overlaps(
    profiles: Mapping[int, MigProfile], slot: int, instances: tuple[Instance, ...]
) -> Iterator[str]:
    slices = [
        (
            instance,
            set(range(instance.start, instance.start + profiles[instance.gpcs].memory_slices)),
        )
        for instance in instances
        if instance.gpcs in profiles
    ]
    for (one, taken), (other, wanted) in combinations(slices, 2):
        shared = sorted(taken & wanted)
        if shared:
            yield (
                f"slot {slot}: {_named(one)} and {_named(other)} overlap "
                f"on memory slice {', '.join(map(str, shared))}"
            )


def _too_many_gpcs(problem: Problem, slot: int, instances: tuple[Instance, ...]) -> Iterator[str]:
    used, available = sum(instance.gpcs for instance in instances), problem.board.compute_slices
    if used > available:
        yield (
            f"slot {slot}: the instances {', '.join(map(str, instances))} take {used} GPCs, "
            f"but {problem.board.name} has {available}"
        )


def _unknown_tenants(problem: Problem, slot: int, instances: tuple[Instance, ...]) -> Iterator[str]:
    names = {tenant.name for tenant in problem.tenants}
    for instance in instances:
        if instance.task is not None and instance.task.tenant not in names:
            name = instance.task.tenant
            yield f"slot {slot}: {_named(instance)}: the problem has no tenant {name!r}"


def _inference_rules(tenant: Tenant, slot: int, instances: tuple[Instance, ...]) -> Iterator[str]:
    spots = _spots(instances, tenant, Kind.INFERENCE)
    task = Task(tenant.name, Kind.INFERENCE)
    if not any(gpcs >= tenant.min_gpcs for _, gpcs in spots):
        yield f"slot {slot}: {task} holds no instance of min_gpcs {tenant.min_gpcs} or more"
    for start, gpcs in spots:
        if gpcs not in tenant.capability:
            yield f"slot {slot}: {task} holds {gpcs}g@{start}, a size its capability does not name"


# The rules of one retraining.


def _retraining_rules(problem: Problem, plan: Plan, tenant: Tenant) -> Iterator[str]:
    held = _held(plan, tenant)
    task = Task(tenant.name, Kind.RETRAINING)
    for slot, spots in held.items():
        if len(spots) > 1:
            yield f"slot {slot}: {task} holds {_written(spots)}, but it may hold one instance"
    if problem.slots_left(tenant) is not None:
        yield from _running_rules(problem, plan, tenant, held)
    elif any(choice.slots for choice in tenant.configurations):
        if held or not tenant.retraining_optional:
            yield from _started_rules(problem, plan, tenant, held)
    elif held:
        slot, spots = next(iter(held.items()))
        yield f"slot {slot}: {task} holds {_written(spots)}, but it has nothing to retrain"


def _running_rules(
    problem: Problem, plan: Plan, tenant: Tenant, held: Mapping[int, list[_Spot]]
) -> Iterator[str]:
    task, left = Task(tenant.name, Kind.RETRAINING), problem.slots_left(tenant) or 0
    spot = _initial_spot(problem, tenant)
    if spot is None:
        yield f"slot 0: {task} runs already, but initial names no instance of it"
        return
    for slot in range(len(plan.slots)):
        spots = held.get(slot, [])
        if slot < left and spot not in spots:
            yield f"slot {slot}: {task} left its running instance {_written([spot])}"
        elif slot >= left and spots:
            yield (
                f"slot {slot}: {task} holds {_written(spots)}, "
                f"but its running retraining ended at slot {left}"
            )


def _started_rules(
    problem: Problem, plan: Plan, tenant: Tenant, held: Mapping[int, list[_Spot]]
) -> Iterator[str]:
    task = Task(tenant.name, Kind.RETRAINING)
    if not held:
        yield f"{task} never runs, but {tenant.name} must retrain once in the window"
        return
    yield from _interruptions(task, held)
    yield from _moves(task, held)
    chosen = _chosen_configuration(plan, tenant)
    if chosen is None:
        names = ", ".join(choice.name for choice in tenant.configurations)
        yield f"{task} has no configuration in the plan; {tenant.name} has {names}"
        return
    lengths, (start, spots) = chosen.slots, next(iter(held.items()))
    sizes = {gpcs for spots in held.values() for _, gpcs in spots}
    for gpcs in sorted(sizes - lengths.keys()):
        yield f"slot {start}: {task} holds {gpcs}g, a size its retraining_slots does not name"
    for gpcs in sorted(sizes & problem.board.plain_profiles.keys()):
        memory_gib = problem.board.plain_profiles[gpcs].memory_gib
        if memory_gib is not None and memory_gib < chosen.memory_gib:
            yield (
                f"slot {start}: {task} holds {gpcs}g with {memory_gib:g} GiB, "
                f"but it needs {chosen.memory_gib:g} GiB"
            )
    gpcs = spots[0][1]
    # A retraining that changes its size has no length to compare with: that is a move.
    if sizes == {gpcs} and gpcs in lengths and len(held) != lengths[gpcs]:
        yield (
            f"slot {start}: {task} has length {len(held)} on {_written(spots)}, "
            f"but retraining_slots asks for {lengths[gpcs]} inside the window"
        )


def _interruptions(task: Task, held: Mapping[int, list[_Spot]]) -> Iterator[str]:
    for slot, following in pairwise(held):
        if following != slot + 1:
            yield (
                f"slot {following}: {task} runs again after it stopped at slot {slot + 1}, "
                "but it must run once and uninterrupted"
            )


def _moves(task: Task, held: Mapping[int, list[_Spot]]) -> Iterator[str]:
    first = next(iter(held.values()))
    for slot, spots in held.items():
        if not set(spots) & set(first):
            yield (
                f"slot {slot}: {task} holds {_written(spots)}, "
                f"but it started on {_written(first)} and must stay there"
            )


def _initial_spot(problem: Problem, tenant: Tenant) -> _Spot | None:
    instances = problem.initial.instances if problem.initial else ()
    return next(iter(_spots(instances, tenant, Kind.RETRAINING)), None)


# What the plan claims.


def _retraining_claims(problem: Problem, plan: Plan) -> Iterator[str]:
    shown = Counter(
        retraining for tenant in problem.tenants for retraining in _shown(problem, plan, tenant)
    )
    claimed = Counter(plan.retrainings)
    for retraining in shown - claimed:
        where = "is in the slots but not in the plan's retrainings"
        yield f"slot {retraining.start}: {_span(retraining)} {where}"
    for retraining in claimed - shown:
        where = "is in the plan's retrainings but not in the slots"
        yield f"slot {retraining.start}: {_span(retraining)} {where}"


def _shown(problem: Problem, plan: Plan, tenant: Tenant) -> Iterator[Retraining]:
    """The retraining of `tenant` that the slots show, from its first to its last slot."""
    running = problem.running(tenant)
    held = _held(plan, tenant)
    if running is not None:
        spot = _initial_spot(problem, tenant)
        if spot is not None:
            yield Retraining(tenant.name, 0, running.slots_left, spot[1], running.configuration)
    elif held:
        start, spots = next(iter(held.items()))
        chosen = _chosen_configuration(plan, tenant)
        name = "" if chosen is None else chosen.name
        yield Retraining(tenant.name, start, max(held) + 1, spots[0][1], name)


def _worth_claims(problem: Problem, plan: Plan) -> Iterator[str]:
    yield from _number_claims(plan)
    worth_of_slots = valued(problem, plan)
    recomputed = {
        "goodput": (plan.goodput, worth_of_slots.goodput),
        "later_goodput": (plan.later_goodput, worth_of_slots.later_goodput),
        "weighting": (plan.weighting, worth_of_slots.weighting),
        "penalty": (plan.penalty, worth_of_slots.penalty),
    }
    for name, (claimed, worth) in recomputed.items():
        if math.isfinite(claimed) and not _close(claimed, worth):
            yield f"the plan claims {name} {claimed!r}, but its slots give {worth!r}"


def _number_claims(plan: Plan) -> Iterator[str]:
    numbers = {
        "goodput": plan.goodput,
        "later_goodput": plan.later_goodput,
        "weighting": plan.weighting,
        "penalty": plan.penalty,
        "upper_bound": plan.upper_bound,
        "solve_s": plan.solve_s,
    }
    for name, value in numbers.items():
        if not math.isfinite(value):
            yield f"the plan's {name} is {value}, but it must be finite"
    if plan.upper_bound < plan.objective and not _close(plan.upper_bound, plan.objective):
        yield f"the plan's upper_bound {plan.upper_bound!r} is below its value {plan.objective!r}"


def _quality_claims(plan: Plan, claims: Claims) -> Iterator[str]:
    """Claimed gap and status that the plan's own goodput and bound contradict."""
    if not math.isfinite(plan.gap):
        return
    if claims.gap is not None and not _close(claims.gap, plan.gap):
        yield (
            f"the plan claims gap {claims.gap!r}, but its upper_bound and goodput give {plan.gap!r}"
        )
    if claims.status is None or claims.status == TIME_LIMIT:
        return
    within = _claimed_gap(claims.status)
    if within is None:
        yield (
            f"the plan's status is {claims.status!r}, but it must be '{PROVEN}', 'within x%' or "
            f"'{TIME_LIMIT}'"
        )
    elif plan.gap > within + TOLERANCE:
        yield (
            f"the plan claims status {claims.status!r}, but its upper_bound is {plan.gap:.2%} "
            "above its goodput"
        )


def _claimed_gap(status: str) -> float | None:
    """The largest gap for which the status is true, as rounded in it; None for no status."""
    if status == PROVEN:
        return 0.0
    match = re.fullmatch(r"within (\d+(?:\.(\d+))?)%", status)
    if match is None:
        return None
    digits = len(match[2] or "")
    return (float(match[1]) + 0.5 * 10.0**-digits) / 100


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


# How things are written in messages.


def _named(instance: Instance) -> str:
    return f"{instance} ({instance.task or 'unused'})"


def _written(spots: Iterable[_Spot]) -> str:
    return " and ".join(f"{gpcs}g@{start}" for start, gpcs in spots)


def _span(retraining: Retraining) -> str:
    chosen = f" as {retraining.configuration!r}" if retraining.configuration else ""
    where = f"on {retraining.gpcs}g until slot {retraining.end}"
    return f"the retraining of {retraining.tenant}{chosen} {where}"
