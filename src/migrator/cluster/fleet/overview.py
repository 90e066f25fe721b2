"""Status of the cluster (GPUs, tenants, problems) as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrator.cluster.fleet.head import Head
    from migrator.cluster.fleet.messages import Report

EMPTY = "empty: all tenants fit on other GPUs; it takes some when that increases goodput"


def overview(head: Head, ended: str | None = None) -> dict[str, Any]:
    """The status as JSON-compatible data."""
    reports = head.watch.reports  # read once: the head runs on, and may drop a GPU
    return {
        "scenario": head.cluster.name,
        "epoch": head.state.epoch,
        "map": head.state.map.version,
        "ended": ended,
        "moves": head.state.moves,
        "store": {"address": head.cluster.shared, "words": head.store_trouble},
        "events": [{"at_s": at_s, "words": event} for at_s, event in list(head.state.events)],
        "gpus": [_gpu(head, gpu.name) for gpu in head.scenario.gpus],
        "tenants": {
            tenant.name: _tenant(head, tenant.name, reports) for tenant in head.scenario.tenants
        },
    }


def _gpu(head: Head, name: str) -> dict[str, Any]:
    last = head.watch.last.get(name)
    board = head.cluster.gpu(name).board.name
    if last is None:
        problem = "no agent has reported yet"
        return {"gpu": name, "board": board, "state": "missing", "words": problem}
    report = last.report
    state = "gone" if name in head.watch.dead else "up" if report.up else "starting"
    placed = [tenant for tenant, home in list(head.state.homes.items()) if home == name]
    problem = head.watch.dead.get(name, report.problem)
    holds = {*placed, *(() if state == "gone" else (*report.tenants, *report.assigned))}
    # a drained tenant is not served, and stays on the GPU
    holds -= {tenant for tenant, status in report.tenants.items() if status.drained}
    if report.drained and state == "up":
        state = "drained"
        problem = problem or ("its tenants are being moved" if holds else "it can be removed")
    if state == "up" and not holds:
        problem = problem or EMPTY
    return {
        "gpu": name,
        "board": board,
        "node": report.node,
        "pid": report.pid,
        "state": state,
        "words": problem,
        "url": report.url,
        "window": report.window,
        "restarts": report.restarts,
        "tenants": placed,
        "holds": sorted(holds),
    }


def _tenant(head: Head, name: str, reports: Mapping[str, Report]) -> dict[str, Any]:
    gpu = head.state.homes.get(name)
    of_gpu = reports.get(gpu or "")
    report = None if of_gpu is None else of_gpu.tenants.get(name)
    shown: dict[str, Any] = {
        "gpu": gpu,
        "url": head.state.map.homes.get(name),
        "state": "served" if name in head.state.map.homes else "away",
        "words": head.state.map.away.get(name, ""),
    }
    if report is not None:
        counts = ("received", "in_time", "late", "dropped", "failed", "accuracy", "version")
        shown |= {count: getattr(report, count) for count in counts}
        shown["evidence"] = report.evidence
    return shown


def overview_text(status: Mapping[str, Any]) -> str:
    """Format the status for a terminal."""
    lines = [f"{status['scenario']}: epoch {status['epoch']}, {status['moves']} moves"]
    if status["ended"]:
        lines.append(f"its head has ended: {status['ended']}")
    store = status.get("store", {})
    if store.get("words"):
        lines.append(f"the shared store {store['address']} is in trouble: {store['words']}")
    lines += ["", f"{'GPU':16} {'board':12} {'state':9} {'window':>6} {'address':28} {'tenants'}"]
    for gpu in status["gpus"]:
        tenants = ", ".join(gpu.get("tenants", ())) or "-"
        lines.append(
            f"{gpu['gpu']:16} {gpu['board']:12} {gpu['state']:9} {gpu.get('window', '-'):>6} "
            f"{gpu.get('url', '-'):28} {tenants}{'  ' + gpu['words'] if gpu['words'] else ''}"
        )
    lines += ["", f"{'tenant':16} {'GPU':16} {'received':>9} {'in time':>9} {'accuracy':>8} by"]
    for name, tenant in status["tenants"].items():
        counts = f"{tenant.get('received', '-'):>9} {tenant.get('in_time', '-'):>9}"
        accuracy = f"{tenant['accuracy']:8.3f}" if "accuracy" in tenant else f"{'-':>8}"
        model = f"{accuracy} {tenant.get('evidence', '-'):8}"
        line = f"{name:16} {tenant['gpu'] or '-':16} {counts} {model} {tenant['words']}"
        lines.append(line.rstrip())
    return "\n".join(lines)
