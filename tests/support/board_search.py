"""The fewest steps between board states by breadth-first search; shares no code with the planner.

A state is the set of (profile, start) pairs on the board. Every state a board can be in is a node,
every create or destroy an edge.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from functools import cache

from migrator.core.catalogue import Board

Item = tuple[str, int]
State = frozenset[Item]


@cache
def neighbours(board: Board) -> Mapping[State, tuple[State, ...]]:
    """Every state of the board, with the states one step away."""
    items = [(profile.name, start) for profile in board.profiles for start in profile.starts]
    graph: dict[State, tuple[State, ...]] = {}
    queue: deque[State] = deque([frozenset()])
    while queue:
        state = queue.popleft()
        if state in graph:
            continue
        bigger = [state | {item} for item in items if item not in state]
        smaller = [state - {removed} for removed in state]
        graph[state] = tuple(
            neighbour for neighbour in (*bigger, *smaller) if _allowed(board, neighbour)
        )
        queue.extend(graph[state])
    return graph


def fewest_steps(
    board: Board,
    start: State,
    foreign: Collection[Item],
    in_use: Collection[Item],
    places: Collection[Item],
    counts: Mapping[str, int],
) -> int | None:
    """How many steps lead to the layout without touching what cannot move; None: no way does."""
    graph, fixed = neighbours(board), frozenset(foreign) | frozenset(in_use)
    seen, queue = {start}, deque([(start, 0)])
    while queue:
        state, steps = queue.popleft()
        if is_reached(state, foreign, places, counts):
            return steps
        for neighbour in graph[state]:
            if neighbour not in seen and fixed <= neighbour:
                seen.add(neighbour)
                queue.append((neighbour, steps + 1))
    return None


def is_reached(
    state: State, foreign: Collection[Item], places: Collection[Item], counts: Mapping[str, int]
) -> bool:
    """Whether a state is the layout, with nothing beside it but foreign instances."""
    if not set(places) <= state or len(set(places)) != len(places):
        return False
    rest = state - set(places)
    least = Counter(profile for profile, start in rest if (profile, start) not in foreign)
    most = Counter(profile for profile, _ in rest)
    names = {*counts, *least}
    return all(least[name] <= counts.get(name, 0) <= most[name] for name in names)


def is_possible(board: Board, places: Collection[Item], counts: Mapping[str, int]) -> bool:
    """Whether the empty board could have the layout."""
    return any(is_reached(state, (), places, counts) for state in neighbours(board))


@cache
def _widths(board: Board) -> Mapping[str, tuple[int, int, int]]:
    return {
        profile.name: (profile.memory_slices, profile.gpcs, profile.max_instances)
        for profile in board.profiles
    }


def _allowed(board: Board, state: State) -> bool:
    widths = _widths(board)
    cells = [start + cell for name, start in state for cell in range(widths[name][0])]
    amounts = Counter(name for name, _ in state)
    return (
        len(cells) == len(set(cells))
        and sum(widths[name][1] for name, _ in state) <= board.compute_slices
        and all(count <= widths[name][2] for name, count in amounts.items())
    )
