"""Converts the percentages of an MPS policy into worker processes.

One process on a large share is slow at small batches, because most SMs idle while one request runs.
Every MPS policy therefore serves a task's share with the processes that answer most requests;
INFless chooses its own processes. No peer's paper forbids it, and with one process per share all
peers would lose for a reason unrelated to their policies.

`PeerLimits` says which processes there may be. With the shares of the runtime, policies give out
whole multiples of the smallest share in place of their own step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Generic, TypeVar

from migrator.core.catalogue import Board
from migrator.core.problem import Kind, Share, Task
from migrator.core.profiles import INTERFERING_PART, Service
from migrator.core.scenario import CHECKPOINTS, PeerLimits, ResizedTraining
from migrator.policies.policy import Observation

_Table = TypeVar("_Table")
BUSY = 0.5
"""The part of the time for which `ekya` assumes neighbours on shares to be busy: chosen in its
favour, in trials at loads 0.6 and 0.8."""
MOST = 64
"""Number of cached services."""
_LARGEST_PART = 0.75
"""A share above this part of the GPU may as well be the whole GPU."""
_TINY = 1e-6
_DIGITS = 9
"""Digits of a percentage, so that rounding does not restart a process."""


def sms_of(board: Board, percent: float) -> float:
    """The number of SMs of a percentage."""
    return board.sms * percent / 100


def step_percent(board: Board, limits: PeerLimits, own: float) -> float:
    """The step in which a policy gives out shares: its own, or the smallest share of a process if
    that is larger or the runtime's shares are multiples of it."""
    least = limits.least_percent(board)
    return max(own, least) if limits.allows_any_share(board) else least


def steps(board: Board, limits: PeerLimits, own: float) -> int:
    """The number of these steps that the GPU has."""
    return int(100 / step_percent(board, limits, own) + _TINY)


def process_percent(board: Board, limits: PeerLimits, percent: float) -> float:
    """The largest share of one process within `percent`; 0 if that is below the smallest."""
    least = limits.least_percent(board)
    if percent < least - _TINY:
        return 0.0
    if limits.allows_any_share(board):
        return percent
    return max(part for part in _process_percents(board, limits) if part <= percent + _TINY)


@lru_cache(maxsize=64)
def _process_percents(board: Board, limits: PeerLimits) -> tuple[float, ...]:
    """The shares of the runtime, ascending."""
    parts = [limits.least_percent(board)]
    while 2 * parts[-1] <= 100 * _LARGEST_PART:
        parts.append(2 * parts[-1])
    return *parts, 100.0


def capability_rps(service: Service, board: Board, percent: float, limits: PeerLimits) -> float:
    """Requests per second on `percent` of the SMs with the best processes."""
    return sum(
        service.capability_rps(sms_of(board, process))
        for process in _processes(service, board, percent, limits)
    )


def serving(
    service: Service, board: Board, percent: float, limits: PeerLimits
) -> tuple[Share, ...]:
    """The shares of a tenant's inference on `percent` of the SMs."""
    task = Task(service.tenant, Kind.INFERENCE)
    parts = _processes(service, board, percent, limits)
    return tuple(Share(number, round(part, _DIGITS), task) for number, part in enumerate(parts))


def _processes(
    service: Service, board: Board, percent: float, limits: PeerLimits
) -> tuple[float, ...]:
    """The shares of the processes that answer most requests on `percent` of the SMs."""
    if not limits.allows_any_share(board):
        return _runtime_processes(service, board, percent, limits)
    most = int(percent / limits.least_percent(board) + _TINY)
    if not most:
        return ()
    many = max(
        range(1, most + 1),
        key=lambda n: n * service.capability_rps(sms_of(board, percent / n)),
    )
    return (percent / many,) * many


def _runtime_processes(
    service: Service, board: Board, percent: float, limits: PeerLimits
) -> tuple[float, ...]:
    """The best processes of the runtime's sizes; the fewest of equally good ones."""
    *parts, whole = _process_percents(board, limits)
    able_rps = {part: service.capability_rps(sms_of(board, part)) for part in (*parts, whole)}
    best: list[tuple[float, tuple[float, ...]]] = [(0.0, ())]
    for room in range(1, int(percent / parts[0] + _TINY) + 1):
        best.append(
            max(
                (
                    (round(before[0] + able_rps[part], 9), (part, *before[1]))
                    for part in parts
                    if (left := room - round(part / parts[0])) >= 0
                    for before in [best[left]]
                ),
                key=lambda choice: (choice[0], -len(choice[1])),
            )
        )
    if percent >= whole - _TINY and able_rps[whole] >= best[-1][0]:
        return (whole,)
    return best[-1][1]


def training(tenant: str, percent: float, duty: float = 1.0) -> Share:
    """The share of a tenant's retraining on `percent` of the SMs."""
    return Share(0, round(percent, _DIGITS), Task(tenant, Kind.RETRAINING), duty)


def equal_parts(
    names: Sequence[str], percent: float, board: Board, limits: PeerLimits
) -> dict[str, float]:
    """Divide `percent` of the SMs equally, in whole steps of the runtime's shares.

    If that is too little for all, the first ones get the smallest share each.
    """
    least = limits.least_percent(board)
    most = int(percent / least + _TINY)
    if limits.allows_any_share(board):
        some = max(1, min(len(names), most))
        return {name: percent / some * (place < some) for place, name in enumerate(names)}
    many, more = divmod(most, max(1, len(names)))
    return {name: (many + (place < more)) * least for place, name in enumerate(names)}


def trainings(observation: Observation, wanted: Mapping[str, float]) -> list[Share]:
    """The shares of retrainings for which a policy has these percentages of the SMs.

    Where another share means a restart, a running one keeps its own, unless it ends sooner if it is
    restarted on a larger one. What is too little for a process goes to the other retrainings.
    """
    board, limits = observation.board, observation.limits
    kept = reserved_shares(observation)
    room = sum(wanted.values()) - sum(share.percent * share.duty for share in kept.values())
    parts = _pooled(wanted, limits.least_percent(board), kept)
    shares = []
    for name in sorted(parts, key=lambda part: part in kept):  # those that wait first
        share = kept.get(name)
        used = share.percent * share.duty if share else 0.0
        percent = process_percent(board, limits, min(parts[name], used + room))
        if share is None or (percent > used and is_worth_resizing(observation, name, percent)):
            room -= percent - used
            share = training(name, percent)
        shares += [share] if share.percent else []
    return shares


def reserved_shares(observation: Observation) -> dict[str, Share]:
    """Tenant -> the share that its running retraining keeps, because another means a restart."""
    if observation.limits.resized_training is not ResizedTraining.RESTARTS:
        return {}
    return running_shares(observation)


def reserved_percent(observation: Observation) -> float:
    """Percent of the SMs of these shares, over the time."""
    return sum(share.percent * share.duty for share in reserved_shares(observation).values())


def _pooled(
    wanted: Mapping[str, float], least: float, kept: Mapping[str, Share]
) -> dict[str, float]:
    """The same percentages, without any that are too little for a process."""
    parts = dict(wanted)
    while little := [name for name, part in parts.items() if part < least - _TINY]:
        small = min(little, key=lambda name: (name in kept, parts[name]))
        left = parts.pop(small)
        if not parts:
            break
        parts[max(parts, key=lambda name: parts[name])] += left
    return {**parts, **{name: 0.0 for name in wanted if name not in parts}}


def running_shares(observation: Observation) -> dict[str, Share]:
    """Tenant -> the share of its running retraining."""
    return {
        view.name: view.retraining.holding
        for view in observation.tenants
        if view.retraining is not None and isinstance(view.retraining.holding, Share)
    }


def beside_busy(service: Service, percent: float, busy: float = 1.0) -> tuple[Service, float]:
    """The service on `percent` of the SMs while the others are busy, and its slowdown.

    A batch slower by a factor is equivalent to an objective shorter by that factor. `busy`: the
    part of the time.
    """
    beside = busy * (1 - percent / 100) / INTERFERING_PART
    slowdown = 1 + service.profile.interference * beside
    return replace(service, slo_s=service.slo_s / slowdown), slowdown


def is_worth_resizing(observation: Observation, name: str, percent: float) -> bool:
    """Whether a running retraining ends sooner if it is restarted on another share.

    A restart costs the start of a process and half of the work between two checkpoints.
    """
    view, board = observation.tenant(name), observation.board
    state, running = view.retraining, running_shares(observation)[name]
    assert state is not None, f"{name} has nothing to retrain"
    stays_s = (1 - state.done) * state.seconds.at(sms_of(board, running.percent)) / running.duty
    again = min(1.0, 1 - state.done + 0.5 / CHECKPOINTS)
    return view.overhead_s + again * state.seconds.at(sms_of(board, percent)) < stays_s


class PerService(Generic[_Table]):
    """Caches `make(service, board, limits)` while all are the same."""

    def __init__(self, make: Callable[[Service, Board, PeerLimits], _Table]) -> None:
        self._make = make
        self._entries: dict[int, tuple[Service, Board, PeerLimits, _Table]] = {}

    def __call__(self, service: Service, board: Board, limits: PeerLimits) -> _Table:
        """The table of this service on this board."""
        entry = self._entries.get(id(service))
        is_same = entry is not None and entry[0] is service and entry[1] is board
        if entry is None or not is_same or entry[2] != limits:
            if len(self._entries) >= MOST:
                del self._entries[next(iter(self._entries))]
            table = self._make(service, board, limits)
            entry = self._entries[id(service)] = service, board, limits, table
        return entry[3]
