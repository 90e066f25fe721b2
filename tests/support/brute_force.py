"""The best plan of a tiny window by exhaustive search, to judge the planners by.

Every sequence of allocations is a path of a graph whose nodes hold all that the future depends on;
a best-first search finds the best path. Independent of the planners: legality from the board's
plain profiles, evaluation as written in the specification. What is skipped, and why that is exact:

1. Instances without a task. They serve nothing and carry no life over, so dropping them from a
   plan leaves a plan of the same goodput.
2. Under `paper`, all but one of the allocations with the same multiset of inference sizes of every
   tenant and the same retraining instances: this and every later slot are worth the same.
3. Under `survivors`, an allocation that leaves room for one more inference instance. Adding that
   instance in this slot breaks no rule, serves no less now and is no younger in any later slot.
4. A path to a node that an at least as good path reached with instances at least as old, because
   it can be continued no better. Ages at which an instance is warm count as one.
5. A path that cannot become the best even if every reconfiguration were free from here on (but no
   instance older than the window allows). A charge can only make that worse.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from migrator.core.catalogue import Board
from migrator.core.problem import (
    Allocation,
    Charge,
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    Task,
    Tenant,
)
from migrator.planning.check import valued

Spot = tuple[int, int]
"""Start and GPCs of an instance."""


class Share(NamedTuple):
    """What one tenant holds in one slot."""

    inference: tuple[Spot, ...]
    retraining: Spot | None


class Status(NamedTuple):
    """How far a tenant's retraining is at the start of a slot.

    Waiting: no spot and not `settled`. Running: a spot and slots left. Otherwise it is settled,
    and `updated` where the new accuracy holds.
    """

    spot: Spot | None = None
    left: int = 0
    settled: bool = False
    updated: bool = False
    configuration: str = ""
    """What it retrains with, or was retrained with."""


Shares = tuple[Share, ...]
Statuses = tuple[Status, ...]
Spots = tuple[Spot | None, ...]

Sizes = tuple[tuple[frozenset[int], int], ...]
"""Tenant by tenant, the sizes that serve it and the least of which it needs one."""

Memory = tuple[tuple[Spot, float], ...]
"""What one tenant's next slot needs of this one.

`survivors`: its instances with their ages. `paper`: its inference instances, aged alike and put
at start 0, because only their sizes count.
"""


class Node(NamedTuple):
    """A path through the first slots."""

    goodput: float
    memories: tuple[Memory, ...] | None
    statuses: Statuses
    path: tuple[Shares, ...]


class Option(NamedTuple):
    """An allocation of one slot, and what it and the slots after it could be worth at most."""

    promise: float
    statuses: Statuses
    shares: Shares


def best_plan(problem: Problem) -> Plan | None:
    """A plan of the highest objective, None where no plan keeps the rules."""
    return _Search(problem).best()


def _remembered(charge: Charge, share: Share) -> list[Spot]:
    if charge == Charge.PAPER:
        return sorted((0, gpcs) for _, gpcs in share.inference)
    return sorted((*share.inference, *([share.retraining] if share.retraining else [])))


@lru_cache(maxsize=512)
def _layouts(board: Board, charge: Charge, tenants: Sizes) -> _Layouts:
    return _Layouts(board, charge, tenants)


class _Layouts:
    """The allocations of a board for tenants of these sizes and least sizes.

    They do not depend on rates, so problems share them.
    """

    def __init__(self, board: Board, charge: Charge, tenants: Sizes) -> None:
        profiles = board.plain_profiles
        self.spots = [
            (start, gpcs) for gpcs, profile in profiles.items() for start in profile.starts
        ]
        self.slices = {
            (start, gpcs): ((1 << profiles[gpcs].memory_slices) - 1) << start
            for start, gpcs in self.spots
        }
        """Memory slices as bits."""
        self.owners = {
            spot: [index for index, (sizes, _) in enumerate(tenants) if spot[1] in sizes]
            for spot in self.spots
        }
        self.gpcs, self.charge, self.tenants = board.compute_slices, charge, tenants
        self.around = cache(self._around)

    def _around(self, retrainings: Spots) -> tuple[Shares, ...]:
        """Every way to lay the inference instances around these retrainings that can matter."""
        held = [spot for spot in retrainings if spot is not None]
        slices = 0
        for spot in held:
            if slices & self.slices[spot]:
                return ()
            slices |= self.slices[spot]
        gpcs = self.gpcs - sum(gpcs for _, gpcs in held)
        if gpcs < 0:
            return ()
        chosen: dict[object, Shares] = {}
        for owned in self._owned(0, slices, gpcs):
            parts: list[list[Spot]] = [[] for _ in retrainings]
            for spot, owner in owned:
                parts[owner].append(spot)
            shares = tuple(map(Share, map(tuple, parts), retrainings))
            if all(map(self._meets_minimum, self.tenants, shares)):
                chosen.setdefault(self._equivalence(shares), shares)
        return tuple(chosen.values())

    def _owned(self, first: int, taken: int, gpcs: int) -> Iterator[tuple[tuple[Spot, int], ...]]:
        """Every set of inference instances with their owners, on the free slices and GPCs."""
        if self.charge == Charge.PAPER or not self._room(taken, gpcs):
            yield ()
        for at, spot in enumerate(self.spots[first:], first):
            slices, owners = self.slices[spot], self.owners[spot]
            if spot[1] > gpcs or taken & slices:
                continue
            for rest in self._owned(at + 1, taken | slices, gpcs - spot[1]) if owners else ():
                for owner in owners:
                    yield ((spot, owner), *rest)

    def _room(self, taken: int, gpcs: int) -> bool:
        return any(
            spot[1] <= gpcs and self.owners[spot] and not taken & self.slices[spot]
            for spot in self.spots
        )

    @staticmethod
    def _meets_minimum(tenant: tuple[frozenset[int], int], share: Share) -> bool:
        return any(gpcs >= tenant[1] for _, gpcs in share.inference)

    def _equivalence(self, shares: Shares) -> object:
        """Allocations with the same key are worth the same, now and later."""
        if self.charge == Charge.PAPER:
            return tuple(tuple(_remembered(self.charge, share)) for share in shares)
        return shares


class _Search:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        sizes = ((frozenset(tenant.capability), tenant.min_gpcs) for tenant in problem.tenants)
        self.layouts = _layouts(problem.board, problem.charge, tuple(sizes))
        self.first_memories = self._first_memories()
        # Caches live as long as one search; on the methods they would keep every problem alive.
        self.options = cache(self._options)
        self.most = cache(self._most)
        self.throughput = cache(self._throughput)
        self.served = cache(self._served)

    def best(self) -> Plan | None:
        """Best-first over the paths, by goodput so far plus the bound on what may come."""
        order = itertools.count()
        queue: list[tuple[float, int, int, Node, int]] = []
        reached: dict[tuple[object, ...], list[tuple[float, ...]]] = {}

        def push(promise: float, node: Node, option: int) -> None:
            heapq.heappush(queue, (-promise, -len(node.path), next(order), node, option))

        push(math.inf, Node(0.0, self.first_memories, self._first_statuses(), ()), 0)
        while queue:
            *_, node, first = heapq.heappop(queue)
            if len(node.path) == self.problem.slots:
                return self._plan(node)
            if first == 0 and not self._is_new(node, reached):
                continue
            # Only while an option promises most of all: the others wait in the queue.
            for at, option in enumerate(self.options(len(node.path), node.statuses)[first:], first):
                if at > first and queue[0][0] <= -(node.goodput + option.promise):
                    push(node.goodput + option.promise, node, at)
                    break
                successor = self._successor(node, option)
                push(successor.goodput + self._bound(successor), successor, 0)
        return None

    def _is_new(
        self, node: Node, reached: dict[tuple[object, ...], list[tuple[float, ...]]]
    ) -> bool:
        """Whether no node taken before makes this one pointless; remembers it if so.

        Nodes of the same slot and statuses have the same bound, so they are taken best first and
        those taken before are at least as good: only the ages are left to compare.
        """
        memories = node.memories or ()
        held = tuple(tuple(spot for spot, _ in memory) for memory in memories)
        ages = tuple(age for memory in memories for _, age in memory)
        taken = reached.setdefault((len(node.path), node.statuses, held), [])
        if any(all(map(float.__ge__, older, ages)) for older in taken):
            return False
        taken.append(ages)
        return True

    def _successor(self, node: Node, option: Option) -> Node:
        # Before slot 0 without `initial`: as if its allocation had always been there.
        before = node.memories
        if before is None:
            before = tuple(map(self._warm, option.shares))
        goodput, memories = node.goodput, []
        for index, share in enumerate(option.shares):
            capability, memory = self.served(index, before[index], share)
            goodput += self.throughput(index, len(node.path), node.statuses[index], capability)
            memories.append(memory)
        return Node(goodput, tuple(memories), option.statuses, (*node.path, option.shares))

    # Retrainings.

    def _first_statuses(self) -> Statuses:
        return tuple(self._first_status(tenant) for tenant in self.problem.tenants)

    def _first_status(self, tenant: Tenant) -> Status:
        left = self.problem.slots_left(tenant)
        if left is not None and self.problem.initial is not None:
            task = Task(tenant.name, Kind.RETRAINING)
            (held,) = (
                instance for instance in self.problem.initial.instances if instance.task == task
            )
            running = self.problem.running(tenant)
            assert running is not None
            return Status((held.start, held.gpcs), left, configuration=running.configuration)
        return Status(settled=not self.problem.may_retrain(tenant))

    def _retraining_choices(self, slot: int, statuses: Statuses) -> Iterator[Statuses]:
        """What the retrainings may do in `slot`, tenant by tenant: as they are in it."""
        options = [self._retraining_options(slot, *numbered) for numbered in enumerate(statuses)]
        return itertools.product(*options)

    def _retraining_options(self, slot: int, index: int, status: Status) -> list[Status]:
        if status.settled or status.spot is not None:
            return [status]
        return [
            status,
            *(
                Status(spot, choice.slots[spot[1]], configuration=choice.name)
                for choice in self.problem.tenants[index].configurations
                for spot in self.layouts.spots
                if slot + choice.slots.get(spot[1], self.problem.slots + 1) <= self.problem.slots
            ),
        ]

    @staticmethod
    def _next_status(status: Status) -> Status:
        if status.spot is None:
            return status
        if status.left > 1:
            return status._replace(left=status.left - 1)
        return Status(settled=True, updated=True, configuration=status.configuration)

    # Goodput.

    def _first_memories(self) -> tuple[Memory, ...] | None:
        if self.problem.initial is None:
            return None
        shares = (self._initial_share(tenant) for tenant in self.problem.tenants)
        return tuple(map(self._warm, shares))

    def _initial_share(self, tenant: Tenant) -> Share:
        assert self.problem.initial is not None
        held: dict[Kind, list[Spot]] = {kind: [] for kind in Kind}
        for instance in self.problem.initial.instances:
            if instance.task is not None and instance.task.tenant == tenant.name:
                held[instance.task.kind].append((instance.start, instance.gpcs))
        return Share(tuple(held[Kind.INFERENCE]), next(iter(held[Kind.RETRAINING]), None))

    def _warm(self, share: Share) -> Memory:
        return tuple((spot, math.inf) for spot in _remembered(self.problem.charge, share))

    def _served(self, index: int, before: Memory, share: Share) -> tuple[float, Memory]:
        """A tenant's capability in a slot, and what the slot after it needs to know."""
        tenant = self.problem.tenants[index]
        overhead = tenant.overhead_s / self.problem.slot_s
        if self.problem.charge == Charge.PAPER:
            return self._paper(tenant, overhead, before, share)
        ages = dict(before)
        # From this age on an instance is warm; older ones need not be told apart.
        warm_at = math.ceil(overhead)
        now: dict[Spot, float] = {}
        for spot in _remembered(self.problem.charge, share):
            age = ages[spot] + 1 if spot in ages else 0.0
            now[spot] = age if age < warm_at else math.inf
        capability = sum(
            tenant.capability[spot[1]] * min(1.0, max(0.0, now[spot] + 1 - overhead))
            for spot in share.inference
        )
        return capability, tuple(now.items())

    def _paper(
        self, tenant: Tenant, overhead: float, before: Memory, share: Share
    ) -> tuple[float, Memory]:
        capability = sum(tenant.capability[gpcs] for _, gpcs in share.inference)
        memory = self._warm(share)
        if memory != before:
            capability -= overhead * capability / len(share.inference)
        return capability, memory

    def _throughput(self, index: int, slot: int, status: Status, capability: float) -> float:
        """What a tenant and slot add to the objective, in expectation over the scenarios."""
        tenant = self.problem.tenants[index]
        served = [min(scenario[slot], capability) for scenario in tenant.received]
        accuracy = tenant.accuracy_pre
        if status.updated:
            accuracy = tenant.configuration(status.configuration).accuracy
        received = sum(scenario[slot] for scenario in tenant.received)
        short = max(0.0, tenant.floor * received - max(0.0, sum(served))) / len(served)
        worth = tenant.weight * accuracy * sum(served) / len(served)
        return worth - self.problem.penalty * short

    # The bound: the same problem with free reconfiguration, where only the statuses carry over.

    def _options(self, slot: int, statuses: Statuses) -> list[Option]:
        """Every allocation of `slot` that can still become a plan, the most promising first."""
        options = []
        for during in self._retraining_choices(slot, statuses):
            after = tuple(map(self._next_status, during))
            later = self._bound_from(slot + 1, after)
            if later > -math.inf:
                for shares in self.layouts.around(tuple(retraining.spot for retraining in during)):
                    now = self._free_goodput(slot, statuses, shares)
                    options.append(Option(now + later, after, shares))
        return sorted(options, key=lambda option: -option.promise)

    def _bound(self, node: Node) -> float:
        return self._bound_from(len(node.path), node.statuses)

    def _bound_from(self, slot: int, statuses: Statuses) -> float:
        """The best goodput from `slot` on if no reconfiguration cost anything."""
        if slot == self.problem.slots:
            return sum(map(self._worth_at_end, self.problem.tenants, statuses))
        options = self.options(slot, statuses)
        return options[0].promise if options else -math.inf

    @staticmethod
    def _worth_at_end(tenant: Tenant, status: Status) -> float:
        """What the retraining is worth after the window; -inf where it had to be completed."""
        if status.settled:
            if not status.updated:
                return 0.0
            choice = tenant.configuration(status.configuration)
            return tenant.weight * tenant.later_goodput(choice)
        return 0.0 if tenant.retraining_optional else -math.inf

    def _free_goodput(self, slot: int, statuses: Statuses, shares: Shares) -> float:
        return sum(
            self.throughput(index, slot, statuses[index], self.most(slot, index, share))
            for index, share in enumerate(shares)
        )

    def _most(self, slot: int, index: int, share: Share) -> float:
        """A tenant's capability if its instances are as old as they can be in `slot`."""
        tenant = self.problem.tenants[index]
        cold = tenant.overhead_s / self.problem.slot_s
        if self.problem.charge == Charge.PAPER or self.first_memories is None:
            cold = 0.0
        warm = dict(self.first_memories[index]) if self.first_memories else {}
        youth = min(1.0, max(0.0, slot + 1 - cold))
        return sum(
            tenant.capability[spot[1]] * (1.0 if spot in warm else youth)
            for spot in share.inference
        )

    # The plan.

    def _plan(self, node: Node) -> Plan:
        slots = tuple(self._allocation(shares) for shares in node.path)
        plan = Plan(0.0, 0.0, "brute-force", 0.0, tuple(self._retrainings(node)), slots)
        plan = valued(self.problem, plan)
        # Two evaluations written apart: where they differ, neither can judge a planner.
        reached = node.goodput + self._bound(node)
        assert math.isclose(plan.objective, reached, rel_tol=1e-9, abs_tol=1e-9)
        return replace(plan, upper_bound=plan.objective)

    def _allocation(self, shares: Shares) -> Allocation:
        instances = []
        for tenant, share in zip(self.problem.tenants, shares, strict=True):
            inference = Task(tenant.name, Kind.INFERENCE)
            instances += [Instance(*spot, inference) for spot in share.inference]
            if share.retraining is not None:
                task = Task(tenant.name, Kind.RETRAINING)
                instances.append(Instance(*share.retraining, task))
        return Allocation(tuple(instances))

    def _retrainings(self, node: Node) -> Iterator[Retraining]:
        for index, tenant in enumerate(self.problem.tenants):
            held = [(s, shares[index].retraining) for s, shares in enumerate(node.path)]
            running = [(slot, spot) for slot, spot in held if spot is not None]
            if running:
                (start, (_, gpcs)), (last, _) = running[0], running[-1]
                left = self.problem.slots_left(tenant)
                end = last + 1 if left is None else left
                name = node.statuses[index].configuration
                yield Retraining(tenant.name, start, end, gpcs, name)
