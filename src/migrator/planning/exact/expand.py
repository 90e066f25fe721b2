"""One slot of the label search, compiled: a layer of labels in, the next one out.

The kernels index whole arrays and call few others: a view of a row, or an array handed to another
kernel, is counted by atomic operations that cost more than the arithmetic on a row.
"""
# ruff: noqa: PLR0912, PLR0915 (a kernel in one piece: handing arrays to another one costs more than a row)

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Bools, Floats, Int32s, Ints
from migrator.planning.exact.bounds import Bounds
from migrator.planning.exact.space import Space, SpaceArrays
from migrator.planning.exact.tables import IMPOSSIBLE, NEVER, GoodputTables
from migrator.planning.exact.transition import DONE, WAITING, LabelTable, SlotTransition, transition
from migrator.planning.kernels import compiled, compiled_inner
from migrator.planning.ranking import descending


class LabelScratch(NamedTuple):
    """Room for what is worked out of one label, and of all of them when some must go."""

    stories: Ints
    """[entry]: its story"""
    entry_of: Ints
    """[joint]: entry of the label that is merged into; all -1 before and after"""
    status: Ints
    """[tenant]: status"""
    until: Ints
    """[tenant]: end of its retraining"""
    ahead: Floats
    """[tenant, pattern]: bound on what follows"""
    stack: Ints
    """[n, 2, tenant]: statuses to be looked at: way, end"""
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
    taken_of_phase: Ints
    """[phase]"""


def empty_scratch(rows: int, space: Space, tables: GoodputTables) -> LabelScratch:
    """Room for layers of that many labels."""
    joints, tenants = space.joint.shape
    # each level pushes at most every start of every tenant, and there is a level per tenant
    configurations = tables.keep.shape[1] - 1
    most = tenants * tenants * space.arrays.starts.shape[1] * configurations + 1
    return LabelScratch(
        stories=np.empty(joints, np.int64),
        entry_of=np.full(joints, -1, np.int64),
        status=np.empty(tenants, np.int64),
        until=np.empty(tenants, np.int64),
        ahead=np.empty((tenants, tables.keep.shape[3])),
        stack=np.empty((most, 2, tenants), np.int64),
        stack_next=np.empty(most, np.int64),
        rank=np.empty(rows),
        phase=np.empty(rows, np.int64),
        order=np.empty((2, rows), np.int64),
        chosen=np.empty(rows, np.bool_),
        taken_of_phase=np.empty(3**tenants, np.int64),
    )


@compiled
def expand(
    slot: int,
    incumbent: float,
    width: int,
    urgency: float,
    space: SpaceArrays,
    tables: GoodputTables,
    bounds: Bounds,
    now: LabelTable,
    count: int,
    then: LabelTable,
    nodes: Int32s,
    used: int,
    seen: Ints,
    step: SlotTransition,
    scratch: LabelScratch,
) -> tuple[int, int, float, int]:
    """Fill `then`; returns (its labels, story nodes used, best bound lost for room, work).

    `seen`: hash table of rows, all -1 before and after (clearing it whole would cost more than
    the labels in it).

    For each label of `now`: what retrains is read; one transition gives the value of every joint
    pattern; then every set of retrainings that can start now gives a label of `then`, by a stack.
    """
    joint, fitting, starts, way_mask = space.joint, space.fitting, space.starts, space.way_mask
    joints, tenants = joint.shape
    configurations = tables.keep.shape[1] - 1
    places = way_mask.shape[0] // configurations
    slots, row_limit, patterns = tables.keep.shape[2], then.bound.shape[0], tables.patterns
    reached, origin, stories, entry_of = (
        step.reached,
        step.origin,
        scratch.stories,
        scratch.entry_of,
    )
    status, until, ahead = scratch.status, scratch.until, scratch.ahead
    stack, stack_next, rent_until = scratch.stack, scratch.stack_next, bounds.rent
    entries, joint_of, value_of, story = then.entries, then.joint, then.value, then.story
    rows_used, missed, work = 0, NEVER, 0
    for label in range(count):
        for i in range(now.entries[label]):
            stories[i] = now.story[label, i]
        mask = 0
        for m in range(tenants):
            way, end = now.way[label, m], now.end[label, m]
            if way >= 0:
                if end == slot:
                    # It has ended. Entries of a label may have come about in different ways, and
                    # each must tell its own at the end: a node per distinct story of the label.
                    first_new_node = used
                    for i in range(now.entries[label]):
                        node = first_new_node
                        while node < used and nodes[node, 0] != stories[i]:
                            node += 1
                        if node == used:
                            nodes[used, 0], nodes[used, 1] = stories[i], m
                            nodes[used, 2], nodes[used, 3] = way, slot
                            used += 1
                        stories[i] = node
                    way = DONE - space.way_configuration[way]
                else:
                    mask |= way_mask[way]
            status[m] = way
            stack[0, 0, m], stack[0, 1, m] = way, end
        # what starts in this slot has no part in it: accuracy changes when a retraining ends
        top = transition(slot, status, mask, space, tables, now, label, step)
        work += joints * space.kept_class.shape[0]
        stack_next[0] = 0
        depth = 1
        while depth > 0:  # one status after the other; the first starts nothing
            depth -= 1
            mask, waiting, first_tenant = 0, 0, stack_next[depth]
            for m in range(tenants):
                way = stack[depth, 0, m]
                status[m], until[m] = way, stack[depth, 1, m]
                if way >= 0:
                    mask |= way_mask[way]
                elif way == WAITING:
                    waiting += 1
            # Push every status in which one more tenant starts now. Only tenants after the last one
            # that started: so every set of starts comes up once.
            for m in range(first_tenant, tenants):
                if status[m] != WAITING:
                    continue
                for n in range(starts.shape[1]):
                    place = starts[mask, n]
                    if place < 0:
                        break
                    if fitting[mask | way_mask[place], 0] < 0:  # no room for the minima
                        continue
                    for c in range(configurations):
                        way = c * places + place
                        duration = tables.durations[m, space.way_option[way]]
                        if duration == 0 or slot + duration > slots:
                            continue
                        for other in range(tenants):
                            stack[depth, 0, other] = status[other]
                            stack[depth, 1, other] = until[other]
                        stack[depth, 0, m], stack[depth, 1, m] = way, slot + duration
                        stack_next[depth] = m + 1
                        depth += 1
            # What the slices that running retrainings leave free can be rented for, stretch by
            # stretch: the mask changes when a retraining ends.
            rent, at = 0.0, slot + 1
            while at < slots:
                taken, change = 0, slots
                for m in range(tenants):
                    if status[m] >= 0 and until[m] > at:
                        taken |= way_mask[status[m]]
                        change = min(change, until[m])
                rent += rent_until[waiting, taken, change] - rent_until[waiting, taken, at]
                at = change
            # first the best pattern of every tenant, whether or not they fit together: this drops
            # most labels
            work += 30
            bound = top + rent
            for m in range(tenants):
                if status[m] == WAITING:
                    bound += bounds.most_waiting[m, slot + 1]
                elif status[m] <= DONE:
                    bound += bounds.most_done[m, DONE - status[m], slot + 1]
                else:
                    c = space.way_configuration[status[m]]
                    bound += bounds.most_running[m, c, until[m], until[m] - slot - 1]
            if bound <= incumbent:
                continue
            if rows_used == row_limit:  # make room before a row is written
                rows_used, lost = _shrink(rows_used, row_limit // 2, urgency, then, seen, scratch)
                missed = max(missed, lost)
            for m in range(tenants):
                c = DONE - status[m] if status[m] < 0 else space.way_configuration[status[m]]
                for p in range(patterns[m]):
                    if status[m] == WAITING:
                        ahead[m, p] = bounds.waiting[m, slot + 1, p]
                    elif status[m] <= DONE:
                        ahead[m, p] = bounds.done[m, c, slot + 1, p]
                    else:
                        ahead[m, p] = bounds.running[m, c, until[m], until[m] - slot - 1, p]
            # Entries that may still win are written to the first free row.
            best, written = NEVER, 0
            for n in range(joints):
                j = fitting[mask, n]
                if j < 0:
                    break
                bound = reached[j] + rent
                for m in range(tenants):
                    bound += ahead[m, joint[j, m]]
                if bound > incumbent and bound > IMPOSSIBLE:
                    joint_of[rows_used, written], value_of[rows_used, written] = j, reached[j]
                    story[rows_used, written] = stories[origin[j]]
                    written += 1
                    best = max(best, bound)
            work += joints
            if written == 0:
                continue
            for m in range(tenants):
                then.way[rows_used, m], then.end[rows_used, m] = status[m], until[m]
            entries[rows_used], then.bound[rows_used] = written, best
            spot = _find(rows_used, then.way, then.end, seen)
            row = seen[spot]
            if row < 0:
                seen[spot], then.spot[rows_used] = rows_used, spot
                rows_used += 1
                continue
            # There is a label of this status: merge the entries into it.
            then.bound[row] = max(then.bound[row], best)
            merged_entries = entries[row]
            for i in range(merged_entries):
                entry_of[joint_of[row, i]] = i
            for i in range(written):
                j, value = joint_of[rows_used, i], value_of[rows_used, i]
                entry = entry_of[j]
                if entry < 0:
                    entry = merged_entries
                    merged_entries += 1
                    joint_of[row, entry], value_of[row, entry] = j, NEVER
                if value > value_of[row, entry]:
                    value_of[row, entry], story[row, entry] = value, story[rows_used, i]
            entries[row] = merged_entries
            for i in range(merged_entries):
                entry_of[joint_of[row, i]] = -1
    if rows_used > width:
        rows_used, lost = _shrink(rows_used, width, urgency, then, seen, scratch)
        missed = max(missed, lost)
    for row in range(rows_used):
        seen[then.spot[row]] = -1
    return rows_used, used, missed, work


@compiled_inner
def _find(row: int, way: Ints, end: Ints, seen: Ints) -> int:
    """Where a label with the status of `row` stands in the hash table, or the free spot for it.

    Open addressing: from the spot that the status gives, on to the first that is free or right.
    """
    tenants, last, key = way.shape[1], seen.shape[0] - 1, 0
    for m in range(tenants):
        until = end[row, m] if way[row, m] >= 0 else 0
        key = key * 1000003 + (way[row, m] + 3) * 8191 + until
    spot: int = (key ^ (key >> 15)) & last
    while seen[spot] >= 0:
        other, same = seen[spot], True
        for m in range(tenants):
            status = way[row, m]
            if way[other, m] != status or (status >= 0 and end[other, m] != end[row, m]):
                same = False
        if same:
            return spot
        spot = (spot + 1) & last
    return spot


@compiled_inner
def _shrink(
    rows_used: int, keep: int, urgency: float, then: LabelTable, seen: Ints, scratch: LabelScratch
) -> tuple[int, float]:
    """Keep `keep` labels, in their order; returns (labels, best bound lost).

    Three quarters go by bound alone. The rest go round the phases (waiting, running, done):
    bounds of one phase are alike, and without a share the phases that leave room for the
    retrainings still to come can vanish before their bound shows it.
    """
    way, end, entries, bound = then.way, then.end, then.entries, then.bound
    rank, phase, order = scratch.rank, scratch.phase, scratch.order
    chosen, taken_of_phase = scratch.chosen, scratch.taken_of_phase
    tenants = way.shape[1]
    for row in range(rows_used):
        # ties go to the label with less retraining left, which must still fit
        tie = urgency * (1e-5 + 1e-8 * abs(bound[row]))
        worth, number = bound[row], 0
        for m in range(tenants):
            worth -= tie if way[row, m] == WAITING else 0.0
            number = 3 * number + min(2, max(0, -way[row, m]))
        rank[row], phase[row], chosen[row] = worth, number, False
    which = descending(rows_used, rank, order)
    for i in range(taken_of_phase.shape[0]):
        taken_of_phase[i] = 0
    # the first ones whatever their phase, then round the phases with a growing share of each
    remaining, share_of_phase, considered = keep, rows_used, keep - keep // 4
    while remaining > 0:
        for i in range(considered):
            row = order[which, i]
            if remaining > 0 and not chosen[row] and taken_of_phase[phase[row]] < share_of_phase:
                chosen[row] = True
                taken_of_phase[phase[row]] += 1
                remaining -= 1
        share_of_phase, considered = 1 if considered < rows_used else 2 * share_of_phase, rows_used
    # the chosen rows move up over the others; the hash table is made again
    lost, kept = NEVER, 0
    for row in range(rows_used):
        seen[then.spot[row]] = -1
        if not chosen[row]:
            lost = max(lost, bound[row])
            continue
        if kept != row:
            for m in range(tenants):
                way[kept, m], end[kept, m] = way[row, m], end[row, m]
            for i in range(entries[row]):
                then.joint[kept, i], then.value[kept, i] = then.joint[row, i], then.value[row, i]
                then.story[kept, i] = then.story[row, i]
            entries[kept], bound[kept] = entries[row], bound[row]
        kept += 1
    for row in range(kept):
        spot = _find(row, way, end, seen)
        then.spot[row], seen[spot] = spot, row
    return kept, lost
