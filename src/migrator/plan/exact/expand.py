"""One slot of the label search, compiled: a layer of labels in, the next one out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from migrator.plan.exact.prices import Bounds
from migrator.plan.exact.space import Floats, Ints, SpaceArrays
from migrator.plan.exact.tables import ANY, IMPOSSIBLE, NEVER, Tables
from migrator.plan.kernels import compiled

Int32s = npt.NDArray[np.int32]
WAITING, DONE = -1, -2
"""Retraining status of a tenant, beside the index of the placement it runs on."""


class Labels(NamedTuple):
    """Labels as columns, one row each."""

    place: Ints
    """[row, tenant]: WAITING, DONE or the placement"""
    end: Ints
    """[row, tenant]: first slot after a running retraining"""
    value: Floats
    """[row, joint]: best goodput so far when the last slot held that joint pattern"""
    story: Int32s
    """[row, joint]: node of the finished retrainings that lead to that value"""
    bound: Floats
    """[row]: no plan through this label is better"""
    spot: Ints
    """[row]: where it stands in the hash table"""


class Tops(NamedTuple):
    """The bounds' maxima over patterns: enough to drop most labels without looking closer."""

    waiting: Floats
    running: npt.NDArray[np.float32]
    done: Floats


class _Stack(NamedTuple):
    """Statuses still to look at in this slot, and which tenant may start next in each."""

    place: Ints
    end: Ints
    next_tenant: Ints


@compiled
def expand(
    slot: int,
    incumbent: float,
    width: int,
    urgency: float,
    space: SpaceArrays,
    tables: Tables,
    bounds: Bounds,
    tops: Tops,
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
    slots, rows = tables.keep.shape[2], then.place.shape[0]
    base, origin = np.empty(joints), np.empty(joints, np.int64)
    tales = np.empty(joints, np.int32)
    # each level pushes at most every start of every tenant, and there is a level per tenant
    most = tenants * tenants * space.starts.shape[1] + 1
    stack = _Stack(
        np.empty((most, tenants), np.int64),
        np.empty((most, tenants), np.int64),
        np.empty(most, np.int64),
    )
    own, until = np.empty(tenants, np.int64), np.empty(tenants, np.int64)
    ahead = np.empty((tenants, tables.keep.shape[3]))
    labels, missed, work = 0, NEVER, 0
    for label in range(count):
        tales[:] = now.story[label]
        own[:], until[:] = now.place[label], now.end[label]
        for m in range(tenants):
            if own[m] >= 0 and until[m] == slot:
                used = _tell(m, own[m], slot, now.value[label], tales, nodes, used)
                own[m] = DONE
        mask = _mask(own, space.place_mask)
        base_top = transition(slot, own, mask, space, tables, now.value[label], base, origin)
        work += joints * space.kept_class.shape[0]
        stack.place[0], stack.end[0], stack.next_tenant[0] = own, until, 0
        depth = 1
        while depth > 0:
            depth -= 1
            own[:], until[:] = stack.place[depth], stack.end[depth]
            mask = _mask(own, space.place_mask)
            depth = _push_starts(slot, slots, mask, own, until, space, tables, stack, depth)
            rent = _rent_ahead(slot + 1, slots, own, until, space.place_mask, bounds.rent)
            work += 30
            if base_top + rent + _most_ahead(slot + 1, own, until, tops) <= incumbent:
                continue
            if labels == rows:
                labels, lost = _shrink(labels, rows // 2, urgency, then, seen)
                missed = max(missed, lost)
            _look_ahead(slot + 1, own, until, bounds, ahead)
            # Written to the first free row, then adopted there or merged into its like.
            best = _fill_row(
                incumbent, rent, base, ahead, space.joint, space.fitting[mask], then.value[labels]
            )
            work += joints
            if best <= IMPOSSIBLE:
                continue
            labels = _adopt(
                labels, own, until, best, origin, tales, space.fitting[mask], then, seen
            )
    if labels > width:
        labels, lost = _shrink(labels, width, urgency, then, seen)
        missed = max(missed, lost)
    for row in range(labels):
        seen[then.spot[row]] = -1
    return labels, used, missed, work


@compiled
def _adopt(
    labels: int,
    own: Ints,
    until: Ints,
    bound: float,
    origin: Ints,
    tales: Int32s,
    fitting: Ints,
    then: Labels,
    seen: Ints,
) -> int:
    """Make the row after the last a label, or merge it into its like; returns the labels."""
    spot = _find(own, until, then, seen)
    row = seen[spot]
    new = row < 0
    if new:
        row, seen[spot], then.spot[labels] = labels, labels, spot
        then.place[row], then.end[row], then.bound[row] = own, until, bound
    then.bound[row] = max(then.bound[row], bound)
    for j in fitting:
        if j < 0:
            break
        if (new and then.value[row, j] > IMPOSSIBLE) or then.value[labels, j] > then.value[row, j]:
            then.value[row, j], then.story[row, j] = then.value[labels, j], tales[origin[j]]
    return labels + 1 if new else labels


@compiled
def _mask(own: Ints, place_mask: Ints) -> int:
    mask = 0
    for place in own:
        if place >= 0:
            mask |= place_mask[place]
    return mask


@compiled
def _push_starts(
    slot: int,
    slots: int,
    mask: int,
    own: Ints,
    until: Ints,
    space: SpaceArrays,
    tables: Tables,
    stack: _Stack,
    depth: int,
) -> int:
    """Push every status in which one more tenant starts now; returns the new depth."""
    for m in range(stack.next_tenant[depth], own.shape[0]):
        if own[m] != WAITING:
            continue
        for place in space.starts[mask]:
            if place < 0:
                break
            duration = tables.durations[m, space.place_size[place]]
            if duration == 0 or slot + duration > slots:
                continue
            if space.fitting[mask | space.place_mask[place], 0] < 0:
                continue
            stack.place[depth], stack.end[depth], stack.next_tenant[depth] = own, until, m + 1
            stack.place[depth, m], stack.end[depth, m] = place, slot + duration
            depth += 1
    return depth


@compiled
def _rent_ahead(
    slot: int, slots: int, own: Ints, until: Ints, place_mask: Ints, rent: Floats
) -> float:
    """What the slices that running retrainings leave free can be rented for from `slot` on."""
    total, waiting = 0.0, 0
    for m in range(own.shape[0]):
        waiting += 1 if own[m] == WAITING else 0
    while slot < slots:
        mask, change = 0, slots
        for m in range(own.shape[0]):
            if own[m] >= 0 and until[m] > slot:
                mask |= place_mask[own[m]]
                change = min(change, until[m])
        total += rent[waiting, mask, change] - rent[waiting, mask, slot]
        slot = change
    return total


@compiled
def _most_ahead(slot: int, own: Ints, until: Ints, tops: Tops) -> float:
    total = 0.0
    for m in range(own.shape[0]):
        if own[m] == WAITING:
            total += tops.waiting[m, slot]
        elif own[m] == DONE:
            total += tops.done[m, slot]
        else:
            total += tops.running[m, until[m], until[m] - slot]
    return total


@compiled
def _look_ahead(slot: int, own: Ints, until: Ints, bounds: Bounds, ahead: Floats) -> None:
    """ahead[m, p]: bound on what tenant m can still earn from `slot` on, holding p before."""
    for m in range(own.shape[0]):
        if own[m] == WAITING:
            ahead[m] = bounds.waiting[m, slot]
        elif own[m] == DONE:
            ahead[m] = bounds.done[m, slot]
        else:
            ahead[m] = bounds.running[m, until[m], until[m] - slot]


@compiled
def _fill_row(
    incumbent: float,
    rent: float,
    base: Floats,
    ahead: Floats,
    joint: Ints,
    fitting: Ints,
    value: Floats,
) -> float:
    """Write the entries that may still beat the incumbent; returns the largest bound."""
    best = NEVER
    value[:] = NEVER
    for j in fitting:
        if j < 0:
            break
        bound = base[j] + rent
        for m in range(joint.shape[1]):
            bound += ahead[m, joint[j, m]]
        if bound > incumbent and bound > IMPOSSIBLE:
            value[j] = base[j]
            best = max(best, bound)
    return best


@compiled
def _tell(
    m: int, place: int, end: int, value: Floats, tales: Int32s, nodes: Int32s, used: int
) -> int:
    """Add a finished retraining to the stories of a label, one node per distinct story."""
    first = used
    for j in range(tales.shape[0]):
        if value[j] <= IMPOSSIBLE:
            continue
        node = first
        while node < used and nodes[node, 0] != tales[j]:
            node += 1
        if node == used:
            nodes[used, 0], nodes[used, 1] = tales[j], m
            nodes[used, 2], nodes[used, 3] = place, end
            used += 1
        tales[j] = node
    return used


@compiled
def _find(own: Ints, until: Ints, labels: Labels, seen: Ints) -> int:
    """Where the label with this status stands in the hash table, or the free spot for it."""
    key: int = 0
    for m in range(own.shape[0]):
        key = key * 1000003 + (own[m] + 3) * 8191 + (until[m] if own[m] >= 0 else 0)
    spot: int = (key ^ (key >> 15)) & (seen.shape[0] - 1)
    while seen[spot] >= 0:
        row, same = seen[spot], True
        for m in range(own.shape[0]):
            same = same and labels.place[row, m] == own[m]
            same = same and (own[m] < 0 or labels.end[row, m] == until[m])
        if same:
            return spot
        spot = (spot + 1) & (seen.shape[0] - 1)
    return spot


@compiled
def _shrink(labels: int, keep: int, urgency: float, then: Labels, seen: Ints) -> tuple[int, float]:
    """Keep `keep` labels, in their order; returns (labels, best bound lost).

    Three quarters go by bound alone. The rest go round the phases (waiting, running, done):
    bounds of one phase are alike, and without a share the phases that leave room for the
    retrainings still to come can vanish before their bound shows it.
    """
    tenants = then.place.shape[1]
    rank = np.empty(labels)
    for row in range(labels):
        # ties go to the label with less retraining left, which must still fit
        tie = urgency * (1e-5 + 1e-8 * abs(then.bound[row]))
        rank[row] = then.bound[row]
        for m in range(tenants):
            rank[row] -= tie if then.place[row, m] == WAITING else 0.0
    order = np.argsort(-rank, kind="mergesort")
    chosen, left = np.zeros(labels, np.bool_), keep
    taken, phase = np.zeros(3**tenants, np.int64), np.zeros(labels, np.int64)
    for row in range(labels):
        for m in range(tenants):
            phase[row] = 3 * phase[row] + max(0, -then.place[row, m])
    for row in order[: keep - keep // 4]:
        chosen[row] = True
        taken[phase[row]] += 1
        left -= 1
    share = 1
    while left > 0:
        for row in order:
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
            then.place[kept], then.end[kept] = then.place[row], then.end[row]
            then.value[kept], then.story[kept] = then.value[row], then.story[row]
            then.bound[kept] = then.bound[row]
        kept += 1
    for row in range(kept):
        then.spot[row] = _find(then.place[row], then.end[row], then, seen)
        seen[then.spot[row]] = row
    return kept, lost


@compiled
def transition(
    slot: int,
    own: Ints,
    mask: int,
    space: SpaceArrays,
    tables: Tables,
    value: Floats,
    base: Floats,
    origin: Ints,
) -> float:
    """base[j]: best goodput up to and including this slot when it holds joint pattern j.

    Only for the j that fit beside `mask`; returns the largest. Which tenants keep their
    pattern is one of 2^tenants subsets; the others may have held anything, and a charge does
    not depend on what it was.
    """
    joint, kept_class, fitting = space.joint, space.kept_class, space.fitting[mask]
    joints, tenants = joint.shape
    gain = np.empty((2, tenants, tables.keep.shape[3]))
    for m in range(tenants):
        after = 1 if own[m] == DONE else 0
        gain[0, m], gain[1, m] = tables.change[m, after, slot], tables.keep[m, after, slot]
    if slot == 0:
        return _first_slot(joint, fitting, tables.held_before, gain, base, origin)
    best, at, top = np.empty(joints), np.empty(joints, np.int64), NEVER
    held, alive = np.empty(joints, np.int64), 0
    for j in range(joints):
        if value[j] > IMPOSSIBLE:
            held[alive] = j
            alive += 1
    base[:] = NEVER
    for subset in range(kept_class.shape[0]):
        best[:] = NEVER
        for j in held[:alive]:
            c = kept_class[subset, j]
            if value[j] > best[c]:
                best[c], at[c] = value[j], j
        for j in fitting:
            if j < 0:
                break
            c = kept_class[subset, j]
            if best[c] <= IMPOSSIBLE:
                continue
            total = best[c]
            for m in range(tenants):
                total += gain[(subset >> m) & 1, m, joint[j, m]]
            if total > base[j]:
                base[j], origin[j] = total, at[c]
                top = max(top, total)
    return top


@compiled
def _first_slot(
    joint: Ints, fitting: Ints, held: Ints, gain: Floats, base: Floats, origin: Ints
) -> float:
    top = NEVER
    base[:] = NEVER
    for j in fitting:
        if j < 0:
            break
        base[j], origin[j] = 0.0, j
        for m in range(joint.shape[1]):
            p = joint[j, m]
            base[j] += gain[1 if held[m] in (ANY, p) else 0, m, p]
        top = max(top, base[j])
    return top
