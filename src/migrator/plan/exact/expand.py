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
from migrator.plan.exact.space import Floats, Ints, SpaceArrays
from migrator.plan.exact.tables import ANY, IMPOSSIBLE, NEVER, Tables
from migrator.plan.kernels import compiled, compiled_inner

Int32s = npt.NDArray[np.int32]
WAITING, DONE = -1, -2
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
) -> tuple[int, int, float, int]:
    """Fill `then`; returns (its labels, story nodes used, best bound lost for room, work).

    `seen`: hash table of rows, all -1 before and after (clearing it whole would cost more than
    the labels in it).
    """
    joints, tenants = space.joint.shape
    slots, rows, patterns = tables.keep.shape[2], then.place.shape[0], tables.keep.shape[3]
    base, origin = np.empty(joints), np.empty(joints, np.int64)
    tales, entry_of = np.empty(joints, np.int32), np.full(joints, -1, np.int64)
    # each level pushes at most every start of every tenant, and there is a level per tenant
    most = tenants * tenants * space.starts.shape[1] + 1
    stack_place, stack_end = (
        np.empty((most, tenants), np.int64),
        np.empty((most, tenants), np.int64),
    )
    stack_next = np.empty(most, np.int64)
    own, until = np.empty(tenants, np.int64), np.empty(tenants, np.int64)
    ahead = np.empty((tenants, patterns))
    # a literal 0 handed to another kernel would compile that kernel once more
    labels, missed, work = int(np.int64(0)), NEVER, 0
    for label in range(count):
        for i in range(now.entries[label]):
            tales[i] = now.story[label, i]
        mask = int(np.int64(0))
        for m in range(tenants):
            own[m], until[m] = now.place[label, m], now.end[label, m]
            if own[m] >= 0 and until[m] == slot:
                # one story node per distinct story of the label
                first = used
                for i in range(now.entries[label]):
                    node = first
                    while node < used and nodes[node, 0] != tales[i]:
                        node += 1
                    if node == used:
                        nodes[used, 0], nodes[used, 1] = tales[i], m
                        nodes[used, 2], nodes[used, 3] = own[m], slot
                        used += 1
                    tales[i] = node
                own[m] = DONE
            elif own[m] >= 0:
                mask |= space.place_mask[own[m]]
            stack_place[0, m], stack_end[0, m] = own[m], until[m]
        top = transition(slot, own, mask, space, tables, now, label, base, origin)
        work += joints * space.kept_class.shape[0]
        stack_next[0] = 0
        depth = 1
        while depth > 0:
            depth -= 1
            mask, waiting, following = int(np.int64(0)), 0, stack_next[depth]
            for m in range(tenants):
                own[m], until[m] = stack_place[depth, m], stack_end[depth, m]
                if own[m] >= 0:
                    mask |= space.place_mask[own[m]]
                elif own[m] == WAITING:
                    waiting += 1
            # push every status in which one more tenant starts now
            for m in range(following, tenants):
                if own[m] != WAITING:
                    continue
                for n in range(space.starts.shape[1]):
                    place = space.starts[mask, n]
                    if place < 0:
                        break
                    duration = tables.durations[m, space.place_size[place]]
                    if duration == 0 or slot + duration > slots:
                        continue
                    if space.fitting[mask | space.place_mask[place], 0] < 0:
                        continue
                    for other in range(tenants):
                        stack_place[depth, other] = own[other]
                        stack_end[depth, other] = until[other]
                    stack_place[depth, m], stack_end[depth, m] = place, slot + duration
                    stack_next[depth] = m + 1
                    depth += 1
            # what the slices that running retrainings leave free can be rented for
            rent, at = 0.0, slot + 1
            while at < slots:
                taken, change = 0, slots
                for m in range(tenants):
                    if own[m] >= 0 and until[m] > at:
                        taken |= space.place_mask[own[m]]
                        change = min(change, until[m])
                rent += bounds.rent[waiting, taken, change] - bounds.rent[waiting, taken, at]
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
                labels, lost = _shrink(labels, rows // 2, urgency, then, seen)
                missed = max(missed, lost)
            for m in range(tenants):
                for p in range(tables.patterns[m]):
                    if own[m] == WAITING:
                        ahead[m, p] = bounds.waiting[m, slot + 1, p]
                    elif own[m] == DONE:
                        ahead[m, p] = bounds.done[m, slot + 1, p]
                    else:
                        ahead[m, p] = bounds.running[m, until[m], until[m] - slot - 1, p]
            # Entries that may still win are written to the first free row.
            best, entries = NEVER, 0
            for n in range(joints):
                j = space.fitting[mask, n]
                if j < 0:
                    break
                bound = base[j] + rent
                for m in range(tenants):
                    bound += ahead[m, space.joint[j, m]]
                if bound > incumbent and bound > IMPOSSIBLE:
                    then.joint[labels, entries], then.value[labels, entries] = j, base[j]
                    then.story[labels, entries] = tales[origin[j]]
                    entries += 1
                    best = max(best, bound)
            work += joints
            if entries == 0:
                continue
            for m in range(tenants):
                then.place[labels, m], then.end[labels, m] = own[m], until[m]
            then.entries[labels], then.bound[labels] = entries, best
            spot = _find(labels, then.place, then.end, seen)
            row = seen[spot]
            if row < 0:
                seen[spot], then.spot[labels] = labels, spot
                labels += 1
                continue
            # There is a label of this status: merge the entries into it.
            then.bound[row] = max(then.bound[row], best)
            for i in range(then.entries[row]):
                entry_of[then.joint[row, i]] = i
            for i in range(entries):
                j = then.joint[labels, i]
                known = entry_of[j]
                if known < 0:
                    known = then.entries[row]
                    then.entries[row] += 1
                    then.joint[row, known], then.value[row, known] = j, NEVER
                if then.value[labels, i] > then.value[row, known]:
                    then.value[row, known] = then.value[labels, i]
                    then.story[row, known] = then.story[labels, i]
            for i in range(then.entries[row]):
                entry_of[then.joint[row, i]] = -1
    if labels > width:
        labels, lost = _shrink(labels, width, urgency, then, seen)
        missed = max(missed, lost)
    for row in range(labels):
        seen[then.spot[row]] = -1
    return labels, used, missed, work


@compiled_inner
def _find(row: int, place: Ints, end: Ints, seen: Ints) -> int:
    """Where a label with the status of `row` stands in the hash table, or the free spot for it."""
    tenants, key = place.shape[1], 0
    for m in range(tenants):
        key = (
            key * 1000003 + (place[row, m] + 3) * 8191 + (end[row, m] if place[row, m] >= 0 else 0)
        )
    spot: int = (key ^ (key >> 15)) & (seen.shape[0] - 1)
    while seen[spot] >= 0:
        other, same = seen[spot], True
        for m in range(tenants):
            same = same and place[other, m] == place[row, m]
            same = same and (place[row, m] < 0 or end[other, m] == end[row, m])
        if same:
            return spot
        spot = (spot + 1) & (seen.shape[0] - 1)
    return spot


@compiled_inner
def _shrink(labels: int, keep: int, urgency: float, then: Labels, seen: Ints) -> tuple[int, float]:
    """Keep `keep` labels, in their order; returns (labels, best bound lost).

    Three quarters go by bound alone. The rest go round the phases (waiting, running, done):
    bounds of one phase are alike, and without a share the phases that leave room for the
    retrainings still to come can vanish before their bound shows it.
    """
    tenants = then.place.shape[1]
    rank, phase = np.empty(labels), np.zeros(labels, np.int64)
    for row in range(labels):
        # ties go to the label with less retraining left, which must still fit
        tie = urgency * (1e-5 + 1e-8 * abs(then.bound[row]))
        rank[row] = then.bound[row]
        for m in range(tenants):
            rank[row] -= tie if then.place[row, m] == WAITING else 0.0
            phase[row] = 3 * phase[row] + max(0, -then.place[row, m])
    order = descending(rank)
    chosen, left = np.zeros(labels, np.bool_), keep
    taken, share = np.zeros(3**tenants, np.int64), 1
    for i in range(keep - keep // 4):
        chosen[order[i]] = True
        taken[phase[order[i]]] += 1
        left -= 1
    while left > 0:
        for i in range(labels):
            row = order[i]
            if left > 0 and not chosen[row] and taken[phase[row]] < share:
                chosen[row] = True
                taken[phase[row]] += 1
                left -= 1
        share *= 2
    lost, kept = NEVER, 0
    for row in range(labels):
        seen[then.spot[row]] = -1
        if not chosen[row]:
            lost = max(lost, then.bound[row])
            continue
        if kept != row:
            for m in range(tenants):
                then.place[kept, m], then.end[kept, m] = then.place[row, m], then.end[row, m]
            for i in range(then.entries[row]):
                then.joint[kept, i], then.value[kept, i] = then.joint[row, i], then.value[row, i]
                then.story[kept, i] = then.story[row, i]
            then.entries[kept], then.bound[kept] = then.entries[row], then.bound[row]
        kept += 1
    for row in range(kept):
        then.spot[row] = _find(row, then.place, then.end, seen)
        seen[then.spot[row]] = row
    return kept, lost


@compiled_inner
def descending(rank: Floats) -> Ints:
    """The rows with the largest rank first, equal ones in their order (merge sort).

    numba's own stable sort takes two seconds to compile.
    """
    count = rank.shape[0]
    order, merged = np.arange(count), np.empty(count, np.int64)
    length = 1
    while length < count:
        for begin in range(0, count, 2 * length):
            middle, end = min(begin + length, count), min(begin + 2 * length, count)
            left, right = begin, middle
            for at in range(begin, end):
                if right >= end or (left < middle and rank[order[left]] >= rank[order[right]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order, merged = merged, order
        length *= 2
    return order


@compiled_inner
def transition(
    slot: int,
    own: Ints,
    mask: int,
    space: SpaceArrays,
    tables: Tables,
    now: Labels,
    label: int,
    base: Floats,
    origin: Ints,
) -> float:
    """base[j]: best goodput up to and including this slot when it holds joint pattern j.

    Only for the j that fit beside `mask`; origin[j]: the entry of `label` it comes from. Returns
    the largest. Which tenants keep their pattern is one of 2^tenants subsets; the others may have
    held anything, and a charge does not depend on what it was.
    """
    joints, tenants = space.joint.shape
    best, at, top = np.full(joints, NEVER), np.zeros(joints, np.int64), NEVER
    gain = np.empty((2, tenants, tables.keep.shape[3]))
    for m in range(tenants):
        after = 1 if own[m] == DONE else 0
        for p in range(tables.patterns[m]):
            gain[0, m, p] = tables.change[m, after, slot, p]
            gain[1, m, p] = tables.keep[m, after, slot, p]
            if slot == 0 and tables.held_before[m] in (ANY, p):
                gain[0, m, p] = gain[1, m, p]
    for n in range(joints):
        j = space.fitting[mask, n]
        if j < 0:
            break
        base[j] = NEVER
    # before slot 0 nothing is held that an entry could tell of
    for subset in range(space.kept_class.shape[0] if slot > 0 else 1):
        for i in range(now.entries[label]):
            c = space.kept_class[subset, now.joint[label, i]]
            if now.value[label, i] > best[c]:
                best[c], at[c] = now.value[label, i], i
        for n in range(joints):
            j = space.fitting[mask, n]
            if j < 0:
                break
            c = space.kept_class[subset, j]
            if best[c] <= IMPOSSIBLE:
                continue
            total = best[c]
            for m in range(tenants):
                total += gain[(subset >> m) & 1, m, space.joint[j, m]]
            if total > base[j]:
                base[j], origin[j] = total, at[c]
                top = max(top, total)
        for i in range(now.entries[label]):
            best[space.kept_class[subset, now.joint[label, i]]] = NEVER
    return top
