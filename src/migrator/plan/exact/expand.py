"""One slot of the label search, compiled: a layer of labels in, the next one out.

The kernels index whole arrays and call few others: a view of a row, or an array handed to another
kernel, is counted by atomic operations that cost more than the arithmetic on a row.
"""
# ruff: noqa: PLR0912, PLR0915 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.plan.exact.prices import Bounds
from migrator.plan.exact.space import Bools, Floats, Ints, Space, SpaceArrays
from migrator.plan.exact.tables import ANY, IMPOSSIBLE, NEVER, Tables
from migrator.plan.kernels import ZERO, compiled, compiled_inner, integer

Int32s = npt.NDArray[np.int32]
WAITING, DONE = integer(-1), integer(-2)
"""Retraining status of a tenant, beside the index of the placement it runs on."""


class Labels(NamedTuple):
    """Labels as columns, one row each. Only joint patterns that may still win have an entry."""

    place: Ints
    """[row, tenant]: WAITING, DONE or the placement"""
    end: Ints
    """[row, tenant]: first slot after a running retraining"""
    entries: Ints
    """[row]: how many entries the label has"""
    joint: Ints
    """[row, entry]: joint pattern that the last slot held"""
    value: Floats
    """[row, entry]: best goodput so far"""
    story: Int32s
    """[row, entry]: node of the finished retrainings that lead to that value"""
    bound: Floats
    """[row]: no plan through this label is better"""
    spot: Ints
    """[row]: where it stands in the hash table"""


class Step(NamedTuple):
    """Room for what a transition works out, and its result."""

    base: Floats
    """[joint]: best goodput when the slot holds it"""
    origin: Ints
    """[joint]: the entry of the label that it comes from"""
    best: Floats
    """[class]: best value of an entry; all NEVER before and after"""
    at: Ints
    """[class]: that entry"""
    gain: Floats
    """[kept, tenant, pattern]: goodput of the slot"""


class Room(NamedTuple):
    """Room for what is worked out of one label, and of all of them when some must go."""

    tales: Ints
    """[entry]: its story"""
    entry_of: Ints
    """[joint]: entry of the label that is merged into; all -1 before and after"""
    own: Ints
    """[tenant]: status"""
    until: Ints
    """[tenant]: end of its retraining"""
    ahead: Floats
    """[tenant, pattern]: bound on what follows"""
    stack: Ints
    """[n, 2, tenant]: statuses to be looked at: placement, end"""
    stack_next: Ints
    """[n]: the first tenant that may still start"""
    rank: Floats
    """[row]"""
    phase: Ints
    """[row]"""
    order: Ints
    """[2, row]: see `descending`"""
    chosen: Bools
    """[row]"""
    taken: Ints
    """[phase]"""


def empty_step(space: Space, tables: Tables) -> Step:
    """Room for a transition."""
    joints, tenants = space.joint.shape
    return Step(
        base=np.empty(joints),
        origin=np.empty(joints, np.int64),
        best=np.full(joints, NEVER),
        at=np.zeros(joints, np.int64),
        gain=np.empty((2, tenants, tables.keep.shape[3])),
    )


def empty_room(rows: int, space: Space, tables: Tables) -> Room:
    """Room for layers of that many labels."""
    joints, tenants = space.joint.shape
    # each level pushes at most every start of every tenant, and there is a level per tenant
    most = tenants * tenants * space.arrays.starts.shape[1] + 1
    return Room(
        tales=np.empty(joints, np.int64),
        entry_of=np.full(joints, -1, np.int64),
        own=np.empty(tenants, np.int64),
        until=np.empty(tenants, np.int64),
        ahead=np.empty((tenants, tables.keep.shape[3])),
        stack=np.empty((most, 2, tenants), np.int64),
        stack_next=np.empty(most, np.int64),
        rank=np.empty(rows),
        phase=np.empty(rows, np.int64),
        order=np.empty((2, rows), np.int64),
        chosen=np.empty(rows, np.bool_),
        taken=np.empty(3**tenants, np.int64),
    )


@compiled
def expand(
    slot: int,
    incumbent: float,
    width: int,
    urgency: float,
    space: SpaceArrays,
    tables: Tables,
    bounds: Bounds,
    now: Labels,
    count: int,
    then: Labels,
    nodes: Int32s,
    used: int,
    seen: Ints,
    step: Step,
    room: Room,
) -> tuple[int, int, float, int]:
    """Fill `then`; returns (its labels, story nodes used, best bound lost for room, work).

    `seen`: hash table of rows, all -1 before and after (clearing it whole would cost more than
    the labels in it).
    """
    joint, fitting, starts, place_mask = space.joint, space.fitting, space.starts, space.place_mask
    joints, tenants = joint.shape
    slots, rows, patterns = tables.keep.shape[2], then.bound.shape[0], tables.patterns
    base, origin, tales, entry_of = step.base, step.origin, room.tales, room.entry_of
    own, until, ahead = room.own, room.until, room.ahead
    stack, stack_next, rent_until = room.stack, room.stack_next, bounds.rent
    entries, joint_of, value_of, story = then.entries, then.joint, then.value, then.story
    labels, missed, work = ZERO, NEVER, 0
    for label in range(count):
        for i in range(now.entries[label]):
            tales[i] = now.story[label, i]
        mask = ZERO
        for m in range(tenants):
            place, end = now.place[label, m], now.end[label, m]
            if place >= 0:
                if end == slot:
                    # one story node per distinct story of the label
                    first = used
                    for i in range(now.entries[label]):
                        node = first
                        while node < used and nodes[node, 0] != tales[i]:
                            node += 1
                        if node == used:
                            nodes[used, 0], nodes[used, 1] = tales[i], m
                            nodes[used, 2], nodes[used, 3] = place, slot
                            used += 1
                        tales[i] = node
                    place = DONE
                else:
                    mask |= place_mask[place]
            own[m] = place
            stack[0, 0, m], stack[0, 1, m] = place, end
        top = transition(slot, own, mask, space, tables, now, label, step)
        work += joints * space.kept_class.shape[0]
        stack_next[0] = 0
        depth = 1
        while depth > 0:
            depth -= 1
            mask, waiting, following = 0, 0, stack_next[depth]
            for m in range(tenants):
                place = stack[depth, 0, m]
                own[m], until[m] = place, stack[depth, 1, m]
                if place >= 0:
                    mask |= place_mask[place]
                elif place == WAITING:
                    waiting += 1
            # push every status in which one more tenant starts now
            for m in range(following, tenants):
                if own[m] != WAITING:
                    continue
                for n in range(starts.shape[1]):
                    place = starts[mask, n]
                    if place < 0:
                        break
                    duration = tables.durations[m, space.place_size[place]]
                    if duration == 0 or slot + duration > slots:
                        continue
                    if fitting[mask | place_mask[place], 0] < 0:
                        continue
                    for other in range(tenants):
                        stack[depth, 0, other], stack[depth, 1, other] = own[other], until[other]
                    stack[depth, 0, m], stack[depth, 1, m] = place, slot + duration
                    stack_next[depth] = m + 1
                    depth += 1
            # what the slices that running retrainings leave free can be rented for
            rent, at = 0.0, slot + 1
            while at < slots:
                taken, change = 0, slots
                for m in range(tenants):
                    if own[m] >= 0 and until[m] > at:
                        taken |= place_mask[own[m]]
                        change = min(change, until[m])
                rent += rent_until[waiting, taken, change] - rent_until[waiting, taken, at]
                at = change
            work += 30
            bound = top + rent
            for m in range(tenants):
                if own[m] == WAITING:
                    bound += bounds.most_waiting[m, slot + 1]
                elif own[m] == DONE:
                    bound += bounds.most_done[m, slot + 1]
                else:
                    bound += bounds.most_running[m, until[m], until[m] - slot - 1]
            if bound <= incumbent:
                continue
            if labels == rows:
                labels, lost = _shrink(labels, rows // 2, urgency, then, seen, room)
                missed = max(missed, lost)
            for m in range(tenants):
                for p in range(patterns[m]):
                    if own[m] == WAITING:
                        ahead[m, p] = bounds.waiting[m, slot + 1, p]
                    elif own[m] == DONE:
                        ahead[m, p] = bounds.done[m, slot + 1, p]
                    else:
                        ahead[m, p] = bounds.running[m, until[m], until[m] - slot - 1, p]
            # Entries that may still win are written to the first free row.
            best, written = NEVER, 0
            for n in range(joints):
                j = fitting[mask, n]
                if j < 0:
                    break
                bound = base[j] + rent
                for m in range(tenants):
                    bound += ahead[m, joint[j, m]]
                if bound > incumbent and bound > IMPOSSIBLE:
                    joint_of[labels, written], value_of[labels, written] = j, base[j]
                    story[labels, written] = tales[origin[j]]
                    written += 1
                    best = max(best, bound)
            work += joints
            if written == 0:
                continue
            for m in range(tenants):
                then.place[labels, m], then.end[labels, m] = own[m], until[m]
            entries[labels], then.bound[labels] = written, best
            spot = _find(labels, then.place, then.end, seen)
            row = seen[spot]
            if row < 0:
                seen[spot], then.spot[labels] = labels, spot
                labels += 1
                continue
            # There is a label of this status: merge the entries into it.
            then.bound[row] = max(then.bound[row], best)
            known = entries[row]
            for i in range(known):
                entry_of[joint_of[row, i]] = i
            for i in range(written):
                j, value = joint_of[labels, i], value_of[labels, i]
                entry = entry_of[j]
                if entry < 0:
                    entry = known
                    known += 1
                    joint_of[row, entry], value_of[row, entry] = j, NEVER
                if value > value_of[row, entry]:
                    value_of[row, entry], story[row, entry] = value, story[labels, i]
            entries[row] = known
            for i in range(known):
                entry_of[joint_of[row, i]] = -1
    if labels > width:
        labels, lost = _shrink(labels, width, urgency, then, seen, room)
        missed = max(missed, lost)
    for row in range(labels):
        seen[then.spot[row]] = -1
    return labels, used, missed, work


@compiled_inner
def _find(row: int, place: Ints, end: Ints, seen: Ints) -> int:
    """Where a label with the status of `row` stands in the hash table, or the free spot for it."""
    tenants, last, key = place.shape[1], seen.shape[0] - 1, 0
    for m in range(tenants):
        until = end[row, m] if place[row, m] >= 0 else 0
        key = key * 1000003 + (place[row, m] + 3) * 8191 + until
    spot: int = (key ^ (key >> 15)) & last
    while seen[spot] >= 0:
        other, same = seen[spot], True
        for m in range(tenants):
            own = place[row, m]
            if place[other, m] != own or (own >= 0 and end[other, m] != end[row, m]):
                same = False
        if same:
            return spot
        spot = (spot + 1) & last
    return spot


@compiled_inner
def _shrink(
    labels: int, keep: int, urgency: float, then: Labels, seen: Ints, room: Room
) -> tuple[int, float]:
    """Keep `keep` labels, in their order; returns (labels, best bound lost).

    Three quarters go by bound alone. The rest go round the phases (waiting, running, done):
    bounds of one phase are alike, and without a share the phases that leave room for the
    retrainings still to come can vanish before their bound shows it.
    """
    place, end, entries, bound = then.place, then.end, then.entries, then.bound
    rank, phase, order, chosen, taken = room.rank, room.phase, room.order, room.chosen, room.taken
    tenants = place.shape[1]
    for row in range(labels):
        # ties go to the label with less retraining left, which must still fit
        tie = urgency * (1e-5 + 1e-8 * abs(bound[row]))
        worth, number = bound[row], 0
        for m in range(tenants):
            worth -= tie if place[row, m] == WAITING else 0.0
            number = 3 * number + max(0, -place[row, m])
        rank[row], phase[row], chosen[row] = worth, number, False
    which = descending(labels, rank, order)
    for i in range(taken.shape[0]):
        taken[i] = 0
    # the first ones whatever their phase, then round the phases with a growing share of each
    left, share, until = keep, labels, keep - keep // 4
    while left > 0:
        for i in range(until):
            row = order[which, i]
            if left > 0 and not chosen[row] and taken[phase[row]] < share:
                chosen[row] = True
                taken[phase[row]] += 1
                left -= 1
        share, until = 1 if until < labels else 2 * share, labels
    lost, kept = NEVER, 0
    for row in range(labels):
        seen[then.spot[row]] = -1
        if not chosen[row]:
            lost = max(lost, bound[row])
            continue
        if kept != row:
            for m in range(tenants):
                place[kept, m], end[kept, m] = place[row, m], end[row, m]
            for i in range(entries[row]):
                then.joint[kept, i], then.value[kept, i] = then.joint[row, i], then.value[row, i]
                then.story[kept, i] = then.story[row, i]
            entries[kept], bound[kept] = entries[row], bound[row]
        kept += 1
    for row in range(kept):
        spot = _find(row, place, end, seen)
        then.spot[row], seen[spot] = spot, row
    return kept, lost


@compiled_inner
def descending(count: int, rank: Floats, order: Ints) -> int:
    """Which row of `order` [2, n] has the numbers below `count`, the largest rank first.

    Equal ones are in their order (merge sort). numba's own stable sort takes two seconds to
    compile.
    """
    for i in range(count):
        order[0, i] = i
    which, length = 0, 1
    while length < count:
        for begin in range(0, count, 2 * length):
            middle, end = min(begin + length, count), min(begin + 2 * length, count)
            left, right = begin, middle
            for at in range(begin, end):
                if right >= end or (
                    left < middle and rank[order[which, left]] >= rank[order[which, right]]
                ):
                    order[1 - which, at] = order[which, left]
                    left += 1
                else:
                    order[1 - which, at] = order[which, right]
                    right += 1
        which = 1 - which
        length *= 2
    return which


@compiled_inner
def transition(
    slot: int,
    own: Ints,
    mask: int,
    space: SpaceArrays,
    tables: Tables,
    now: Labels,
    label: int,
    step: Step,
) -> float:
    """Fill `base`: best goodput up to and including this slot when it holds a joint pattern.

    Only for those that fit beside `mask`; `origin`: the entry of `label` it comes from. Returns
    the largest. Which tenants keep their pattern is one of 2^tenants subsets; the others may have
    held anything, and a charge does not depend on what it was.
    """
    joint, fitting, kept_class, held = space.joint, space.fitting, space.kept_class, now.joint
    base, best, at, gain = step.base, step.best, step.at, step.gain
    joints, tenants = joint.shape
    top, entries = NEVER, now.entries[label]
    for m in range(tenants):
        after, before = 1 if own[m] == DONE else 0, tables.held_before[m]
        for p in range(tables.patterns[m]):
            kept = tables.keep[m, after, slot, p]
            free = slot == 0 and before in (ANY, p)
            gain[0, m, p] = kept if free else tables.change[m, after, slot, p]
            gain[1, m, p] = kept
    for n in range(joints):
        j = fitting[mask, n]
        if j < 0:
            break
        base[j] = NEVER
    # before slot 0 nothing is held that an entry could tell of
    for subset in range(kept_class.shape[0] if slot > 0 else 1):
        for i in range(entries):
            c = kept_class[subset, held[label, i]]
            if now.value[label, i] > best[c]:
                best[c], at[c] = now.value[label, i], i
        for n in range(joints):
            j = fitting[mask, n]
            if j < 0:
                break
            c = kept_class[subset, j]
            total = best[c]
            if total <= IMPOSSIBLE:
                continue
            for m in range(tenants):
                total += gain[(subset >> m) & 1, m, joint[j, m]]
            if total > base[j]:
                base[j], step.origin[j] = total, at[c]
                top = max(top, total)
        for i in range(entries):
            best[kept_class[subset, held[label, i]]] = NEVER
    return top
