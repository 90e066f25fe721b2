"""The state of a live run as text."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.core.catalogue import Board
from migrator.core.preferences import Preferences
from migrator.records.current_run import (
    CurrentRun,
    CurrentTenant,
    CurrentUnit,
    DaemonState,
    daemon_url,
)
from migrator.records.rows import RunRow
from migrator.report.slices import current_slabs
from migrator.report.terminal import (
    NONE,
    accuracy_words,
    count,
    dated_lines,
    moment,
    number,
    slices_text,
    table_lines,
    wrapped,
)

_STATUS_EVENTS = 8
_STATUS_HEADERS = (
    *("tenant", "received", "in time", "late", "dropped", "failed", "waiting"),
    *("workers", "accuracy", "version", "retraining"),
)
_UNIT_HEADERS = ("task", "state", "at", "size", "since")


def status_text(now: CurrentRun, board: Board) -> str:
    """Daemon, window, tenants, the slices, the last events."""
    parts = ["\n".join(_status_head(now))]
    if now.tenants:
        rows = [_tenant_cells(tenant) for tenant in now.tenants]
        parts.append("\n".join(table_lines(_STATUS_HEADERS, [rows], text_columns=1, shrinks=0)))
        whys = [
            f"retraining of {tenant.name}: {tenant.why}" for tenant in now.tenants if tenant.why
        ]
        tallies = {tenant.name: tenant.tally for tenant in now.tenants}
        kept = Preferences.recorded(now.run.about).words(tallies)
        if kept:
            parts.append("\n".join(line for words in kept for line in wrapped(words)))
        if whys:
            parts.append("\n".join(line for why in whys for line in wrapped(why)))
    if now.held and now.probe.state is not DaemonState.ENDED:
        rows = [_unit_cells(holding, now.now_s) for holding in now.held]
        parts.append(slices_text(current_slabs(now.held, board), board.memory_slices))
        parts.append("\n".join(table_lines(_UNIT_HEADERS, [rows], text_columns=2, shrinks=0)))
    events = now.events[-_STATUS_EVENTS:]
    if events:
        lines = [
            dated_lines(event.at_s, now.now_s, f"{event.kind}: {event.words}") for event in events
        ]
        parts.append("\n".join(line for event_lines in lines for line in event_lines))
    return "\n\n".join(parts)


def _status_head(now: CurrentRun) -> Iterator[str]:
    run, now_s = now.run, now.now_s
    yield f"{run.scenario}, run {run.run}: {_daemon_words(run, now)}"
    since = moment(run.began_s, now_s)
    yield f"{run.board}, driver {run.driver}, policy {run.policy}, since {since}"
    if now.window is not None:
        slot = "" if now.slot is None else f", slot {now.slot + 1} of {now.slots}"
        yield f"window {now.window}{slot}"
    if now.files:
        yield f"labels and records: {now.files}"
    if now.paused:
        yield "paused: plans change nothing; `migrator admin resume` continues"
    drained = [tenant.name for tenant in now.tenants if tenant.drained]
    if drained:
        yield f"drained: {', '.join(drained)}; `migrator admin undrain TENANT` takes requests again"
    if now.probe.state is DaemonState.KILLED:
        yield f"the following is as last recorded, at {moment(now.last_s, now_s)}"


def _daemon_words(run: RunRow, now: CurrentRun) -> str:
    probe, url = now.probe, daemon_url(run)
    match probe.state:
        case DaemonState.RUNNING:
            return f"running as process {run.pid}" + (f" at {url}" if url else "")
        case DaemonState.SILENT if now.window is None:
            return f"process {run.pid} is starting; {probe.why}"
        case DaemonState.SILENT:
            return f"process {run.pid} exists, but {probe.why}"
        case DaemonState.ENDED:
            return f"ended {moment(run.ended_s or now.last_s, now.now_s)}"
        case DaemonState.KILLED:
            return (
                f"process {run.pid} was killed or crashed; `migrator serve` starts again, with the "
                "last good models"
            )


def _tenant_cells(tenant: CurrentTenant) -> tuple[str, ...]:
    tally = tenant.tally
    retraining = tenant.retraining or NONE
    if tenant.retraining == "running" and tenant.progress is not None:
        retraining = f"{tenant.progress:.0%}"
    if tenant.configuration and tenant.retraining not in (None, "none"):
        retraining += f" as {tenant.configuration}"
    return (
        tenant.name,
        *map(count, (tally.received, tally.unjudged, tally.late, tally.dropped, tally.failed)),
        count(tenant.waiting),
        str(tenant.workers),
        accuracy_words(tenant.accuracy),
        number(tenant.version),
        retraining,
    )


def _unit_cells(unit: CurrentUnit, now_s: float) -> tuple[str, ...]:
    since = NONE if unit.since_s is None else moment(unit.since_s, now_s)
    return unit.task or NONE, unit.state, number(unit.start), f"{unit.gpcs:.3g}g", since
