"""How a run stands in a glance: from its records, and from its daemon where it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from migrator.records.held_blocks import planned_blocks
from migrator.records.rows import SecondRecord
from migrator.records.standing import Found, Life
from migrator.report.top_pace import Pace, Paced
from migrator.report.top_reading import TopRows

_WINDOW_S, _SLOT_S = 200.0, 1.0
"""Of a run that does not say."""


@dataclass(frozen=True)
class TopUnit:
    """Something on the GPU, planned or held."""

    start: int | None
    """None: a share, which has no place."""
    gpcs: float
    tenant: str | None
    kind: str
    """inference, retraining, or nothing."""
    state: str
    """As the executor has it; "planned" for what a plan has."""


@dataclass(frozen=True)
class TopTenant:
    """One tenant; None: nobody can tell."""

    name: str
    paced: Paced
    goodput_rps: float | None
    """In time, times what labels say of the model."""
    waiting: int | None
    accuracy: float | None
    version: int | None
    retraining: str | None
    progress: float | None
    drained: bool


@dataclass(frozen=True)
class TopLine:
    """Something that happened."""

    at_s: float
    kind: str
    words: str


@dataclass(frozen=True)
class TopView:
    """Everything on the screen."""

    now_s: float
    scenario: str
    board: str
    driver: str
    policy: str
    run: int | None
    life: Life
    why: str
    window: int | None
    slot: int | None
    slots: int
    paused: bool
    tenants: tuple[TopTenant, ...]
    planned: tuple[TopUnit, ...] | None
    """None: no plan is known."""
    held: tuple[TopUnit, ...]
    lines: tuple[TopLine, ...]


def top_view(rows: TopRows | None, found: Found, pace: Pace, now_s: float) -> TopView:
    """The view at `now_s`; `rows`: None where only the daemon is known."""
    answer = found.answer or {}
    window, slot, slots = _moment(rows, found, now_s)
    run = rows.run if rows is not None else None
    return TopView(
        now_s,
        answer.get("scenario", run.scenario if run else "?"),
        answer.get("board", run.board if run else "?"),
        answer.get("driver", run.driver if run else "?"),
        answer.get("policy", run.policy if run else "?"),
        run.run if run else None,
        found.life,
        found.why,
        window,
        slot,
        slots,
        bool(answer.get("paused", _paused(rows, found))),
        tuple(_tenant(each, rows, answer, pace) for each in _names(rows, answer)),
        _planned(rows, window, slot, slots),
        _held(rows, answer),
        _lines(rows),
    )


def _moment(rows: TopRows | None, found: Found, now_s: float) -> tuple[int | None, int | None, int]:
    """Window, slot, slots of a window."""
    if found.answer is not None:
        answer = found.answer
        return answer.get("window"), answer.get("slot"), answer.get("slots", 1)
    if rows is None:
        return None, None, 1
    about = rows.run.about
    slot_s = float(about.get("slot_s") or _SLOT_S)
    slots = max(1, round(float(about.get("window_s") or _WINDOW_S) / slot_s))
    if rows.window is None:
        return None, None, slots
    if found.life in (Life.ENDED, Life.KILLED):
        return rows.window.window, None, slots
    slot = int((now_s - rows.window.began_s) / slot_s)
    return rows.window.window, min(slots - 1, max(0, slot)), slots


def _names(rows: TopRows | None, answer: Mapping[str, Any]) -> tuple[str, ...]:
    if "tenants" in answer:
        return tuple(answer["tenants"])
    if rows is None:
        return ()
    said = [each for each in rows.run.about.get("tenants", ()) if isinstance(each, str)]
    known = {each.tenant for each in rows.seconds} | {each.tenant for each in rows.tenants}
    return tuple(dict.fromkeys((*said, *sorted(known))))


def _paused(rows: TopRows | None, found: Found) -> bool:
    """A daemon that is gone took its pause with it."""
    there = found.life in (Life.RUNNING, Life.SILENT)
    return there and _last_done(rows, ("pause", "resume"), None) == "pause"


def _last_done(rows: TopRows | None, kinds: tuple[str, ...], tenant: str | None) -> str | None:
    """The last of these actions, which tells how it stands where nobody answers."""
    done = [] if rows is None else [e for e in rows.actions if e.outcome == "done"]
    said = [each.kind for each in done if each.kind in kinds and each.tenant == tenant]
    return said[-1] if said else None


def _tenant(name: str, rows: TopRows | None, answer: Mapping[str, Any], pace: Pace) -> TopTenant:
    known = _recorded(name, rows)
    told = answer.get("tenants", {}).get(name)
    if told is not None:
        job = told.get("retraining")
        known = replace(
            known,
            waiting=told.get("waiting"),
            accuracy=told.get("accuracy"),
            version=told.get("version"),
            retraining=None if job == "none" else job,
            progress=told.get("progress"),
            drained=bool(told.get("drained")),
        )
        now = pace.of(name)
        if now.rate_rps is None:  # the first look: the records know the last seconds
            now = replace(known.paced, p50_ms=now.p50_ms, p99_ms=now.p99_ms)
        known = replace(known, paced=now)
    in_time_rps = known.paced.in_time_rps
    if in_time_rps is None or known.accuracy is None:
        return known
    return replace(known, goodput_rps=in_time_rps * known.accuracy)


def _recorded(name: str, rows: TopRows | None) -> TopTenant:
    """A tenant as the records last knew it."""
    if rows is None:
        return TopTenant(name, Paced(), None, None, None, None, None, None, False)
    version = next((each for each in rows.versions if each.tenant == name), None)
    last = next((each for each in rows.tenants if each.tenant == name), None)
    job = next((each for each in rows.retrainings if each.tenant == name), None)
    accuracy = version.accuracy if version is not None else None
    if last is not None and (version is None or last.version == version.number):
        accuracy = last.accuracy_after
    return TopTenant(
        name,
        _seconds([each for each in rows.seconds if each.tenant == name]),
        None,
        None,
        accuracy,
        version.number if version else last.version if last else None,
        job.phase if job else None,
        job.progress if job else None,
        _last_done(rows, ("drain", "undrain"), name) == "drain",
    )


def _seconds(seconds: list[SecondRecord]) -> Paced:
    spent_s = sum(each.span_s for each in seconds)
    if not spent_s:
        return Paced()
    in_time = sum(each.in_time or 0 for each in seconds)
    ended = in_time + sum(each.late + each.dropped + each.failed for each in seconds)
    rate_rps = sum(each.received for each in seconds) / spent_s
    return Paced(rate_rps, in_time / spent_s, in_time / ended if ended else None)


def _planned(
    rows: TopRows | None, window: int | None, slot: int | None, slots: int
) -> tuple[TopUnit, ...] | None:
    if rows is None or rows.window is None or rows.window.window != window or slot is None:
        return None
    blocks = planned_blocks(rows.window, rows.plans, slots)
    if not blocks:
        return None
    now = [each for each in blocks if each["from"] <= slot < each["until"]]
    return _ordered([_unit(e["start"], e["gpcs"], e["task"], "planned") for e in now])


def _held(rows: TopRows | None, answer: Mapping[str, Any]) -> tuple[TopUnit, ...]:
    if "units" in answer:
        units = answer["units"]
        return _ordered([_unit(e["start"], e["gpcs"], e["task"], e["state"]) for e in units])
    there = rows.units if rows is not None else ()
    return _ordered([TopUnit(e.start, e.gpcs, e.tenant, e.task, e.state) for e in there])


def _unit(start: int | None, gpcs: float, task: str | None, state: str) -> TopUnit:
    tenant, _, kind = (task or "").rpartition("/")
    return TopUnit(start, gpcs, tenant or None, kind, state)


def _ordered(units: list[TopUnit]) -> tuple[TopUnit, ...]:
    return tuple(sorted(units, key=lambda e: (e.start is None, e.start or 0, e.tenant or "")))


def _lines(rows: TopRows | None) -> tuple[TopLine, ...]:
    """The last events, actions among them; why the policy is asked is told once."""
    events = rows.events if rows is not None else ()
    followed = zip(events, (*(each.words for each in events[1:]), ""), strict=False)
    return tuple(
        TopLine(each.at_s, each.kind, each.words)
        for each, after in followed
        if each.kind != "replan" or each.words not in after
    )
