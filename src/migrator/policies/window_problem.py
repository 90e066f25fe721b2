"""The planning problem of a window: what an observation and its forecasts say of every tenant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board, Multiset
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
from migrator.core.profiles import Service
from migrator.forecast.forecaster import without_gaps
from migrator.policies.layouts import Wish, Worth, best_allocation, inference_wish
from migrator.policies.mps_workers import beside_busy
from migrator.policies.policy import (
    Observation,
    RetrainingChoice,
    TenantView,
    remaining_s,
    running,
    waiting,
)

Floats = NDArray[np.float64]

_LATEST, _FEWEST = 20, 3
"""Windows from which the requests of later ones are expected, and the fewest that say anything."""
_LATE_S = 10.0
"""Seconds that the plan with which a requested retraining begins may be late. It keeps the instance
for so much longer; a retraining that ends before is worth a new plan."""


def problem_of(
    observation: Observation, charge: Charge, *, optional: bool = False, slots: int | None = None
) -> Problem:
    """The rest of the window as a planning problem, or the next `slots` slots if that is longer.

    A retraining that no size can finish within these slots is left out, and an `optional` one
    that would probably not fit. Durations are means: plans with longer ones hold the instance of
    a retraining that has ended, which cost more than plans that run late. Beyond the window
    the arrivals of a later one are expected.
    """
    later = {view.name: _later(observation, view) for view in observation.tenants}
    answered = _answered_later(observation, later) if optional else {}
    beyond = 0.0
    if slots is not None and slots > observation.slots_left:
        beyond = (slots - observation.slots_left) / observation.slots
        observation = _extended(observation, later, slots)
    busy = busy_part(observation)
    return Problem(
        board=observation.board,
        slot_s=observation.slot_s,
        slots=observation.slots_left,
        charge=charge,
        tenants=tuple(
            _tenant(
                observation,
                view,
                busy,
                optional=optional,
                # what the gain is worth within the slots beyond the window is part of the plan
                requests_after=answered.get(view.name, 0.0) * max(0.0, view.value_after - beyond),
            )
            for view in observation.tenants
        ),
        initial=_initial(observation, charge, busy) if observation.held else None,
    )


def _extended(observation: Observation, later: Mapping[str, Floats], slots: int) -> Observation:
    """The observation of a window that lasts until `slots` slots from now."""
    after = np.arange(slots - observation.slots_left) % observation.slots_left

    def extended(view: TenantView) -> TenantView:
        return replace(view, ahead=np.hstack([_ahead(view), later[view.name][:, after]]))

    views = tuple(map(extended, observation.tenants))
    return replace(observation, slots=observation.slot + slots, tenants=views)


def is_requested(view: TenantView) -> bool:
    """Whether the tenant has a waiting retraining that was requested."""
    state = view.retraining
    return state is not None and state.requested and state.holding is None


def _ahead(view: TenantView) -> Floats:
    """The tenant's forecast."""
    assert view.ahead is not None, "a policy that plans has sight of what is ahead"
    return view.ahead


def _later(observation: Observation, view: TenantView) -> Floats:
    """Arrivals to expect in a later window, in the shape of the forecast of this one.

    Their mean is that of the latest windows, and as much of what the forecast is above or below it
    as one window resembled the next (their autocorrelation). It is the forecast's if too few
    windows were observed.
    """
    ahead, slots = _ahead(view), observation.slots
    count = min(_LATEST, len(view.history) // slots)
    if count < _FEWEST:
        return ahead
    rates = without_gaps(view.history)[-count * slots :].reshape(count, slots).mean(axis=1)
    mean, forecast = float(rates.mean()), float(ahead.mean())
    off = rates - mean
    spread = float(off @ off)
    resembling = max(0.0, float(off[1:] @ off[:-1]) / spread) if spread > 0 else 0.0
    expected = mean + resembling * (forecast - mean)
    return ahead * (expected / forecast) if forecast > 0 else np.full_like(ahead, expected)


def _answered_later(observation: Observation, later: Mapping[str, Floats]) -> dict[str, float]:
    """Tenant -> requests of a later window that the best layout without retrainings answers.

    After the window a better model gains only on requests that are answered at all.
    """
    board = observation.board
    views = tuple(
        replace(view, retraining=None, ahead=later[view.name]) for view in observation.tenants
    )
    serving = replace(observation, tenants=views, held=())
    busy = busy_part(serving)
    wishes = [inference_wish(view.service, board, board.compute_slices) for view in views]
    answered = [
        answered_by(serving, view, wish, busy) for view, wish in zip(views, wishes, strict=True)
    ]

    def worth(chosen: tuple[Multiset, ...]) -> Worth:
        rows = zip(views, answered, chosen, strict=True)
        weighted = (v.service.weight * v.accuracy * answers[sizes] for v, answers, sizes in rows)
        return (sum(weighted),)

    best = best_allocation(serving, wishes, worth)
    windows = observation.slots_left / observation.slots
    requests = {}
    for view, answers in zip(views, answered, strict=True):
        task = Task(view.name, Kind.INFERENCE)
        sizes = sorted((instance.gpcs for instance in best if instance.task == task), reverse=True)
        requests[view.name] = answers[tuple(sizes)] / windows
    return requests


def answered_by(
    observation: Observation, view: TenantView, wish: Wish, busy: float
) -> dict[Multiset, float]:
    """Sizes -> expected requests that instances of these sizes answer in the rest of the window."""
    capability = _capability(observation, view, busy)
    return {
        sizes: float(
            np.minimum(_ahead(view), sum(capability[gpcs] for gpcs in sizes)).mean(axis=0).sum()
        )
        for sizes in wish.choices
    }


def _tenant(
    observation: Observation,
    view: TenantView,
    busy: float,
    *,
    optional: bool,
    requests_after: float,
) -> Tenant:
    return Tenant(
        name=view.name,
        received=tuple(tuple(map(float, scenario)) for scenario in _ahead(view)),
        capability=_capability(observation, view, busy),
        accuracy_pre=view.accuracy,
        configurations=_configurations(observation, view, optional),
        overhead_s=view.overhead_s,
        min_gpcs=view.service.min_gpcs,
        retraining_optional=optional and not is_requested(view),
        requests_after=requests_after,
        weight=view.service.weight,
        floor=view.service.floor,
    )


def _capability(observation: Observation, view: TenantView, busy: float) -> dict[int, float]:
    """Requests per slot of the sizes that answer within the objective, if nothing slows them down.

    Shares slow each other down, instances do not. `busy`: the part of the board that is busy.
    """
    service, board = view.service, observation.board
    per_second = service.capabilities_rps(board)
    if board.is_of_shares:
        per_second = {
            gpcs: _beside_busy_rps(service, board, gpcs, rps, busy)
            for gpcs, rps in per_second.items()
        }
    return {gpcs: rps * observation.slot_s for gpcs, rps in per_second.items() if rps > 0}


def busy_part(observation: Observation) -> float:
    """The part of a board of shares that is expected to be busy in the rest of the window.

    With requests and retrainings, each on the size that takes the least of the board. Beside busy
    neighbours these take longer, which keeps the board busy for longer.
    """
    board = observation.board
    if not board.is_of_shares:
        return 0.0
    busy = slower = 0.0
    for view in observation.tenants:
        service = view.service
        answered_rps = max(rps / gpcs for gpcs, rps in service.capabilities_rps(board).items())
        if answered_rps > 0:
            busy += float(_ahead(view).mean()) / observation.slot_s / answered_rps
        busy += _training_gpcs(observation, view)
        smallest = 100 * board.sms_of(board.sizes[0]) / board.sms
        slower += (beside_busy(service, smallest)[1] - 1) / len(observation.tenants)
    busy /= board.compute_slices
    return min(1.0, busy / (1 - busy * slower)) if busy * slower < 1 else 1.0


def _training_gpcs(observation: Observation, view: TenantView) -> float:
    """GPCs that the tenant's retraining takes, in the mean of the rest of the window.

    On its instance, or on the size that takes the least; none if it cannot end in time.
    """
    if view.retraining is None:
        return 0.0
    board, left_s = observation.board, observation.slots_left * observation.slot_s
    held = running(observation).get(view.name)
    if held is not None:
        return held.gpcs * min(1.0, remaining_s(view, board.sms_of(held.gpcs)) / left_s)
    parts = {
        gpcs: remaining_s(view, board.sms_of(gpcs)) / left_s
        for gpcs in view.service.training_sizes(board)
    }
    return min((gpcs * part for gpcs, part in parts.items() if part <= 1), default=0.0)


def _beside_busy_rps(
    service: Service, board: Board, gpcs: int, alone_rps: float, busy: float
) -> float:
    slowed, slowdown = beside_busy(service, 100 * board.sms_of(gpcs) / board.sms, busy)
    # a batch that is in time only beside idle neighbours still counts: they may be idle
    return (slowed.capabilities_rps(board)[gpcs] or alone_rps) / slowdown


def _configurations(
    observation: Observation, view: TenantView, optional: bool
) -> tuple[RetrainingConfiguration, ...]:
    """The configurations with the sizes on which a waiting retraining can finish in time.

    A plan that must retrain has the first one only, as in the paper.
    """
    state = view.retraining
    if state is None:
        return ()
    return tuple(
        RetrainingConfiguration(
            choice.accuracy_post,
            _slots_in_time(observation, view, choice, late=optional),
            choice.configuration,
            choice.memory_gib,
        )
        for choice in (state.choices if optional else state.choices[:1])
    )


def _slots_in_time(
    observation: Observation, view: TenantView, choice: RetrainingChoice, *, late: bool
) -> dict[int, int]:
    """Size -> slots in which a waiting retraining can finish in time; empty if none waits.

    `late`: a size counts only if four of five retrainings would finish in time on it.
    """
    if view.name not in {tenant.name for tenant in waiting(observation)}:
        return {}
    board = observation.board
    return {
        gpcs: retraining_slots(observation, view, choice, gpcs, late=False)
        for gpcs in view.service.training_sizes(board)
        if board.memory_mib_of(gpcs) >= 1024 * choice.memory_gib
        and retraining_slots(observation, view, choice, gpcs, late=late) <= observation.slots_left
    }


def retraining_slots(
    observation: Observation, view: TenantView, choice: RetrainingChoice, gpcs: int, *, late: bool
) -> int:
    """Slots that a waiting retraining holds an instance."""
    assert view.retraining is not None, f"{view.name} has nothing to retrain"
    chosen = replace(view, retraining=replace(view.retraining, seconds=choice.seconds))
    seconds = remaining_s(chosen, observation.board.sms_of(gpcs), late=late) + _drain_s(observation)
    return max(1, math.ceil(seconds / observation.slot_s))


def _drain_s(observation: Observation) -> float:
    """The longest time that an instance may be occupied by its last batch before it is destroyed.

    Without it a retraining that ends within milliseconds of a slot's end would lose its instance
    just before.
    """
    smallest = observation.board.sms_of(observation.board.sizes[0])
    services = [view.service for view in observation.tenants]
    return max(service.latency_s(service.batch, smallest) for service in services)


def _initial(observation: Observation, charge: Charge, busy: float) -> Initial:
    kept = running(observation)
    instances = (
        _as_held(observation, holding, charge, busy)
        for holding in observation.held
        if isinstance(holding, Instance) and holding not in kept.values()
    )
    return Initial(
        instances=(*instances, *kept.values()),
        retrainings=tuple(
            RunningRetraining(
                name,
                _slots_left(observation, name, instance),
                _running_configuration(observation, name),
            )
            for name, instance in kept.items()
        ),
    )


def _as_held(observation: Observation, instance: Instance, charge: Charge, busy: float) -> Instance:
    """An instance without a running retraining, as the planner may use it.

    The instance of a finished retraining is warm for its tenant, which `survivors` takes into
    account. Under `paper` it would be a change of the inference task, so there it is unused.
    """
    task = instance.task
    if task is None:
        return instance
    left_over = task.kind is Kind.RETRAINING
    sizes = _capability(observation, observation.tenant(task.tenant), busy)
    if instance.gpcs not in sizes or (left_over and charge is Charge.PAPER):
        return replace(instance, task=None)
    return replace(instance, task=Task(task.tenant, Kind.INFERENCE))


def _running_configuration(observation: Observation, tenant: str) -> str:
    """The name of the configuration of a running retraining."""
    state = observation.tenant(tenant).retraining
    assert state is not None, f"{tenant} retrains"
    return state.configuration


def _slots_left(observation: Observation, tenant: str, instance: Instance) -> int:
    """Slots until a running retraining ends; limited to the window's end."""
    view = observation.tenant(tenant)
    left_s = remaining_s(view, observation.board.sms_of(instance.gpcs))
    if view.retraining is not None and view.retraining.requested and not view.retraining.done:
        left_s += _LATE_S
    return min(observation.slots_left, max(1, math.ceil(left_s / observation.slot_s)))
