"""Which machine of the Ray cluster every GPU of the scenario is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.core.cluster import ClusterGpu
from migrator.core.errors import InputError
from migrator.io.strict import listed


@dataclass(frozen=True)
class Node:
    """A machine that is there now."""

    key: str
    """As Ray knows it."""
    names: frozenset[str]
    """What a scenario may call it: its name, its host's name, its address."""
    address: str
    gpus: int = 0
    """As Ray counts them; 0: it has none, or nobody has said."""


@dataclass(frozen=True)
class Seat:
    """Where a GPU is."""

    node: Node
    number: int
    """Among the GPUs of its machine."""


def seats_of(
    gpus: Sequence[ClusterGpu],
    nodes: Sequence[Node],
    held: Mapping[str, Seat],
    *,
    real: bool,
) -> dict[str, Seat]:
    """GPU -> where it is, for all whose machine is there; `held` ones stay where they are.

    Those that name no machine are spread, with `real` ones only where Ray has seen GPUs.
    """
    there = {each.key for each in nodes}
    seats = {name: seat for name, seat in held.items() if seat.node.key in there}
    taken = Counter(seat.node.key for seat in seats.values())
    for gpu in gpus:
        if gpu.name in seats:
            continue
        node = _node_of(gpu, nodes, taken, real=real)
        if node is not None:
            used = {seat.number for seat in seats.values() if seat.node.key == node.key}
            number = next(each for each in range(len(used) + 1) if each not in used)
            seats[gpu.name] = Seat(node, number)
            taken[node.key] += 1
    return seats


def _node_of(
    gpu: ClusterGpu, nodes: Sequence[Node], taken: Counter[str], *, real: bool
) -> Node | None:
    if gpu.node is not None:
        return next((each for each in nodes if gpu.node in each.names), None)
    able = [each for each in nodes if not real or taken[each.key] < each.gpus]
    return min(able, key=lambda each: taken[each.key], default=None)


def require_seats(
    gpus: Sequence[ClusterGpu], seats: Mapping[str, Seat], nodes: Sequence[Node]
) -> None:
    """InputError where a GPU of the scenario is nowhere."""
    missing = [each for each in gpus if each.name not in seats]
    if not missing:
        return
    first = missing[0]
    names = listed([min(each.names, key=len) for each in nodes], last="and")
    if first.node is not None:
        raise InputError(
            f"cluster.gpus: {first.name} is in {first.node}, which is not part of the Ray cluster; "
            f"start Ray there with `ray start --address ... --node-name {first.node}` (there are "
            f"{names})"
        )
    raise InputError(
        f"cluster.gpus: no machine has a GPU left for {first.name}; start Ray on more machines, or "
        f"take it out of the scenario (there are {names})"
    )
