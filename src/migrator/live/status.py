"""What is going on in a daemon now, for the API and for people."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from migrator.live.recorder import extent
from migrator.serve.counts import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from migrator.live.daemon import Daemon


def status(daemon: Daemon) -> Mapping[str, Any]:
    """Everything in one object."""
    clock, scenario = daemon.clock, daemon.serving.live.scenario
    return {
        "pid": os.getpid(),
        "scenario": scenario.name,
        "board": scenario.board.name,
        "driver": daemon.serving.driver,
        "policy": scenario.policy,
        "url": daemon.url,
        "window": clock.number,
        "slot": clock.slot,
        "slots": clock.slots,
        "window_s": clock.window_s,
        "into_s": round(clock.into_s, 3),
        "paused": daemon.executor.paused,
        "store": daemon.admission.store_trouble,
        "drained": [name for name, each in daemon.tenants.items() if each.drained],
        "tenants": {name: _tenant(daemon, name) for name in daemon.tenants},
        "pids": {each.name: each.pid for each in daemon.hands.serving.values()},
        "units": [
            {
                "instance": str(each.instance),
                **extent(each.instance, scenario.board),
                "state": each.state,
                "task": str(each.task) if each.task else None,
            }
            for each in daemon.executor.units
        ],
    }


def _tenant(daemon: Daemon, name: str) -> Mapping[str, Any]:
    tenant, counts = daemon.tenants[name], daemon.router.counts[name]
    total, job = counts.total, tenant.retraining
    number = tenant.version.number if tenant.version else 0
    return {
        "received": total.received,
        "in_time": total.in_time,
        "late": total.late,
        "dropped": total.dropped,
        "failed": total.failed,
        "waiting": daemon.router.waiting(name),
        "workers": daemon.router.workers(name),
        "prepared": daemon.parts.workers.prepared(name),
        "latency": {"bounds_s": LATENCY_BOUNDS_S, "counts": counts.latencies},
        "drained": tenant.drained,
        "refused": daemon.router.refuses(name),
        "version": number,
        "back_to": daemon.learning.versions[name].earlier(number),
        "accuracy": round(tenant.accuracy, 4),
        "retraining": job.phase if job else "none",
        "progress": round(job.progress, 3) if job else 0.0,
        "overhead_s": round(tenant.overhead_s, 3),
    }
