"""The order in which instances are replaced so that no tenant loses its last ready instance.

Every tenant needs one ready instance throughout; its other instances may be removed at any time. A
search state is one kept instance per tenant. A step creates a replacement beside all kept
instances, waits until it is warm, and releases the instance that it replaces. An order ends when
every kept instance is part of the target layout. If any order of creations and removals does that,
the search finds one with the fewest replacements.

If nothing else helps, a replacement may be temporary, at a place outside the target. Its size is
one that the tenant has in the current or the target layout, because other sizes may be too small
for its model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import combinations, pairwise, product

from migrator.control.units import Site, State, Unit, Wanted, fits
from migrator.core.catalogue import Board, placements
from migrator.core.problem import Kind, Task

Kept = tuple[Site, ...]
"""The kept instance of every tenant, in the order of the tenants."""
Sites = tuple[Site, ...]
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Replacement:
    """A new instance of a task. Once it is ready, the instance kept for the task may be removed."""

    task: Task
    new: Site


@dataclass(frozen=True)
class Order:
    """The ready instance that each task keeps, and its replacements in order."""

    kept: tuple[tuple[Task, Site], ...]
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True)
class Layouts:
    """The current and the target layout. Fields are tuples, so that results can be cached."""

    board: Board
    ready: tuple[tuple[Task, Sites], ...]
    """Ready instances of every task that is also in the target."""
    warming: tuple[tuple[Task, Sites], ...]
    """Warming instances of tasks without a ready one. They are kept if that causes no other task a
    gap."""
    target: tuple[tuple[Site, Task | None], ...]
    fixed: Sites
    """Instances that stay where they are."""
    available: Board
    """The board without the places of foreign instances."""
    resting: Sites = ()
    """Places where an operation has just failed and is not retried yet."""
    idle: Sites = ()
    """The instances at these places."""


class Transition:
    """The instances to keep and to create in one step from the ready instances to the target."""

    def __init__(self, layouts: Layouts) -> None:
        self._board = layouts.board
        order = find_order(layouts)
        self.kept: dict[Task, Site] = dict(order.kept)
        """The ready instance that each task keeps."""
        self.begun: dict[Site, Task | None] = {}
        """Instances that can be created without delaying the order: replacements and other parts of
        the target. Instances in their way are removed."""
        self._held: dict[Site, Task | None] = dict.fromkeys((*layouts.fixed, *layouts.idle))
        self._held.update((site, task) for task, site in order.kept)
        self._reserved = 0
        self._begin_replacements(order.replacements)
        self._keep_until_own_can_begin(layouts)
        for site, task in layouts.target:
            if self._is_free(site, task):
                self.begun[site] = self._held[site] = task

    def is_in_the_way(self, site: Site, task: Task | None) -> bool:
        """Whether an instance that is not kept must be removed for one that is being created."""
        if site in self.begun:
            return self.begun[site] not in (None, task)
        return not fits(self._board, site, {*self.begun, *self.kept.values()})

    def is_reserved(self, site: Site) -> bool:
        """Whether a replacement needs these slices later."""
        return bool(site.mask & self._reserved)

    def _begin_replacements(self, replacements: Iterable[Replacement]) -> None:
        waiting: set[Task] = set()
        for replacement in replacements:
            if replacement.task not in waiting and self._is_free(replacement.new, replacement.task):
                self.begun[replacement.new] = self._held[replacement.new] = replacement.task
            else:
                self._reserved |= replacement.new.mask
            waiting.add(replacement.task)

    def _keep_until_own_can_begin(self, layouts: Layouts) -> None:
        """Keep an instance of each task that no order can serve without a gap.

        It is kept until the task's next instance can be created, unless a replacement needs its
        slices. This makes the gap as short as possible.
        """
        kept: dict[Task, Site] = {}
        for task, sites in (*layouts.ready, *layouts.warming):
            own = [site for site, wanted in layouts.target if wanted == task]
            if task in self.kept or any(self._is_free(site, task) for site in own):
                continue
            staying = [site for site in sites if not self.is_in_the_way(site, task)]
            if staying:
                kept[task] = max(staying)
        self.kept.update(kept)
        self._held.update((site, task) for task, site in kept.items())

    def _is_free(self, site: Site, task: Task | None) -> bool:
        if site.mask & self._reserved or not fits(self._board, site, self._held):
            return False
        return self._held.get(site) in (None, task)


@lru_cache(maxsize=256)
def find_order(layouts: Layouts) -> Order:
    """The order that serves as many tasks as possible without a gap.

    Among equal choices, prefer the fewest replacements, then leave out the tasks at the lowest
    places.
    """
    for tasks in _choices(layouts):
        orders = [
            order for choice in tasks if (order := _find_order_of(layouts, choice)) is not None
        ]
        orders = [order for order in orders if _has_short_gaps(layouts, order)]
        if orders:
            return min(orders, key=lambda order: len(order.replacements))
    return Order((), ())


def _has_short_gaps(layouts: Layouts, order: Order) -> bool:
    """Whether every task left out can start its next instance as soon as it loses its last one.

    A plan accounts for a gap of this length only.
    """
    kept = dict(order.kept)
    left = {task: sites for task, sites in layouts.ready if task not in kept}
    for replacement in order.replacements:
        held = _mask((*kept.values(), replacement.new))
        for task, sites in tuple(left.items()):
            own = [site for site, wanted in layouts.target if wanted == task]
            staying = tuple(site for site in sites if not site.mask & replacement.new.mask)
            if not staying and all(site.mask & held for site in own):
                return False
            left[task] = staying
            if not staying or any(not site.mask & held for site in own):
                del left[task]
        kept[replacement.task] = replacement.new
    return True


def _choices(layouts: Layouts) -> Iterator[list[tuple[tuple[Task, Sites], ...]]]:
    """Sets of tasks to keep, largest first; sets of equal size are yielded together.

    A task that already has an instance of the target is always kept, because no plan accounts for a
    gap of that task.
    """
    ready, warming = (
        sorted(entries, key=lambda entry: (max(entry[1]), entry[0]), reverse=True)
        for entries in (layouts.ready, layouts.warming)
    )
    settled = [
        (task, sites)
        for task, sites in ready
        if any((site, task) in layouts.target for site in sites)
    ]
    others = [entry for entry in ready if entry not in settled]
    for count in range(len(others), -1, -1):
        for more in range(len(warming), -1, -1):
            choices = product(combinations(others, count), combinations(warming, more))
            yield [(*settled, *of_ready, *of_warming) for of_ready, of_warming in choices]


def _find_order_of(layouts: Layouts, ready: Sequence[tuple[Task, Sites]]) -> Order | None:
    tasks = [task for task, _ in ready]
    starts = sorted(product(*(sites for _, sites in ready)), key=lambda s: _overlaps(layouts, s))
    targets = [[site for site, wanted in layouts.target if wanted == task] for task in tasks]
    for places in _places(layouts, ready, targets):
        states = _search(layouts, starts, targets, places)
        if states is not None:
            replacements = (
                Replacement(task, new)
                for before, after in pairwise(states)
                for task, old, new in zip(tasks, before, after, strict=True)
                if old != new
            )
            return Order(tuple(zip(tasks, states[0], strict=True)), tuple(replacements))
    return None


def _overlaps(layouts: Layouts, kept: Kept) -> int:
    """The number of target instances that would wait for the kept ones."""
    return sum(
        any(site.mask & other.mask and site != other for other in kept)
        for site, _ in layouts.target
    )


def _places(
    layouts: Layouts, ready: Sequence[tuple[Task, Sites]], targets: Sequence[Sequence[Site]]
) -> Iterator[list[list[Site]]]:
    """Per task, the places where its replacements may be.

    The target's places come first, then temporary places of tasks that are being served. Each set
    is yielded first without the places where an operation has just failed.
    """
    temporary = [
        [*own, *_temporary(layouts, own, entry[1])] if entry in layouts.ready else own
        for entry, own in zip(ready, targets, strict=True)
    ]
    for places in (targets, temporary):
        possible = [[site for site in own if _is_possible(layouts, site)] for own in places]
        if layouts.resting:
            rest = _mask(layouts.resting)
            yield [[site for site in own if not site.mask & rest] for own in possible]
        yield possible


def _is_possible(layouts: Layouts, site: Site) -> bool:
    return site in layouts.fixed or fits(layouts.board, site, layouts.fixed)


def _temporary(layouts: Layouts, own: Sequence[Site], now: Sites) -> list[Site]:
    """Places outside the target, sorted: those that the target does not need first, those whose
    slices it already uses last."""
    sizes, taken = {site.gpcs for site in (*own, *now)}, {*own, *layouts.fixed}
    needed, used = _mask(site for site, _ in layouts.target), 0
    for task, ready in layouts.ready:
        used |= _mask(site for site in ready if (site, task) in layouts.target)
    sites = (
        Site(place.start, place.gpcs, place.mask)
        for place in placements(layouts.available)
        if place.gpcs in sizes
    )
    return sorted(
        (site for site in sites if site not in taken),
        key=lambda site: (bool(site.mask & used), bool(site.mask & needed)),
    )


def _search(
    layouts: Layouts,
    starts: Sequence[Kept],
    targets: Sequence[Collection[Site]],
    places: Sequence[Sequence[Site]],
) -> list[Kept] | None:
    """The shortest sequence of states from a start to the target; None if there is none.

    A* search. The bound is the number of tasks that are not in the target yet. States are tuples of
    site indices, because the search visits many states and sites are slow to hash.
    """
    sites = [*dict.fromkeys(site for group in (*starts, *places) for site in group)]
    number = {site: index for index, site in enumerate(sites)}
    masks = [site.mask for site in sites]
    # a fixed instance already exists, so it is counted once
    gpcs = [0 if site in layouts.fixed else site.gpcs for site in sites]
    free = layouts.board.compute_slices - sum(site.gpcs for site in layouts.fixed)
    options = [[number[site] for site in own] for own in places]
    ends = [{number[site] for site in own if site in number} for own in targets]

    def missing(state: Numbers) -> int:
        return sum(site not in own for site, own in zip(state, ends, strict=True))

    begin = [tuple(number[site] for site in start) for start in starts]
    before: dict[Numbers, Numbers | None] = dict.fromkeys(begin)
    steps = dict.fromkeys(begin, 0)
    queue = [(missing(state), order, state) for order, state in enumerate(begin)]
    heapify(queue)
    while queue:
        bound, _, state = heappop(queue)
        done = steps[state]
        if bound == done:
            return [tuple(sites[site] for site in passed) for passed in _path(before, state)]
        mask, left = 0, free
        for site in state:
            mask |= masks[site]
            left -= gpcs[site]
        for index, own in enumerate(options):
            for new in own:
                if masks[new] & mask or gpcs[new] > left or new == state[index]:
                    continue
                after = (*state[:index], new, *state[index + 1 :])
                if after not in steps or steps[after] > done + 1:
                    before[after], steps[after] = state, done + 1
                    heappush(queue, (done + 1 + missing(after), len(steps), after))
    return None


def _path(before: Mapping[Numbers, Numbers | None], last: Numbers) -> list[Numbers]:
    states = [last]
    while (state := before[states[-1]]) is not None:
        states.append(state)
    return states[::-1]


def _mask(sites: Iterable[Site]) -> int:
    mask = 0
    for site in sites:
        mask |= site.mask
    return mask


def layouts_of(
    board: Board,
    units: Iterable[Unit],
    wanted: Wanted,
    fixed: Iterable[Site],
    available: Board,
    resting: Collection[Site] = (),
) -> Layouts:
    """The layouts to find an order for. Tasks that the target does not serve are left out."""
    served = {task for task in wanted.values() if task and task.kind is Kind.INFERENCE}
    serving: dict[State, dict[Task, list[Site]]] = {State.READY: {}, State.WARMING: {}}
    idle: list[Site] = []
    for unit in units:
        if unit.state in serving and unit.task in served:
            serving[unit.state].setdefault(unit.task, []).append(unit.site)
        elif unit.state is State.IDLE and unit.site in resting:
            idle.append(unit.site)
    ready, warming = serving[State.READY], serving[State.WARMING]
    return Layouts(
        board,
        _entries(ready),
        _entries({task: sites for task, sites in warming.items() if task not in ready}),
        tuple(wanted.items()),
        tuple(sorted(set(fixed).difference(idle))),
        available,
        tuple(sorted(resting)),
        tuple(sorted(idle)),
    )


def _entries(sites: Mapping[Task, list[Site]]) -> tuple[tuple[Task, Sites], ...]:
    return tuple((task, tuple(sorted(sites[task]))) for task in sorted(sites))
