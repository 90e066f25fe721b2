"""The records of a small live run, written by the real writer: two tenants, three windows.

In window 1 photos retrains on slices 4 and 5, where cameras had served; then version 2 takes over.
Window 2 has not ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from migrator.records.rows import (
    PlanRecord,
    Record,
    SecondRecord,
    TenantWindowRecord,
    UnitRecord,
    VersionRecord,
    WindowRecord,
)
from migrator.records.store import Records

WINDOW_S, SLOTS, WINDOWS = 20.0, 20, 3
TENANTS = ("photos", "cameras")
RATES_RPS = {"photos": 60, "cameras": 30}
PARTS_S = {
    "create_s": 0.4,
    "load_s": 0.05,
    "context_s": 0.2,
    "copy_s": 0.03,
    "first_s": 0.1,
    "total": 0.38,
    "warm_s": 0.5,
}
RETRAINED_S = 12.0
"""Into window 1: version 2 takes over."""
_OPEN: list[Records] = []
"""Runs that go on, or were killed: their files stay open."""


@dataclass(frozen=True)
class Made:
    """How a run is made up."""

    policy: str = "migrator"
    late: int = 2
    """Per tenant and second in the first five seconds of a window."""
    ended_windows: int = 2
    url: str | None = None
    pid: int | None = None
    """None: this process's."""
    ends: bool = False
    began_s: float | None = None
    """When the first window began; None: so that window 2 is half over."""
    more: tuple[Record, ...] = ()
    """Further rows."""


def write_run(path: Path, made: Made | None = None) -> int:
    """Write a run and give its number; a run that does not end is left as a killed one."""
    made = made or Made()
    about = {"window_s": WINDOW_S, "slot_s": 1.0} | ({"url": made.url} if made.url else {})
    with patch("os.getpid", return_value=made.pid or os.getpid()):
        records = Records(
            path,
            scenario=path.parent.name,
            board="A100-40GB",
            driver="emulated",
            policy=made.policy,
            seed=0,
            about=about,
        )
    zero_s = made.began_s if made.began_s is not None else time.time() - 2.5 * WINDOW_S
    for row in (*rows(zero_s, made), *made.more):
        records.put(row)
    records.event("model", "photos: version 2 is better on data held out")
    records.flush()
    if made.ends:
        records.close()
    else:
        _OPEN.append(records)
    return records.run


def rows(zero_s: float, made: Made) -> Iterator[Record]:
    """Everything that happened, the first window beginning at `zero_s`."""
    for number in range(WINDOWS):
        began_s, ended = zero_s + number * WINDOW_S, number < made.ended_windows
        yield WindowRecord(
            number,
            began_s,
            made.policy,
            "last-mean",
            ended_s=began_s + WINDOW_S if ended else None,
            plan=plan(number) if made.policy == "migrator" else None,
            predicted_goodput=1500.0 + number if made.policy == "migrator" else None,
            plan_s=0.25,
            replans=number,
        )
        if made.policy == "migrator":
            words = (0, "the window begins", 1500.0 + number, 0.25, 0.0067)
            yield PlanRecord(number, began_s, *words, blocks=tuple(_blocks(number)))
        if ended:
            yield from (_tenant_window(number, name, made) for name in TENANTS)
    yield from _seconds(made)
    yield from _units(zero_s)
    at_s = zero_s + WINDOW_S + RETRAINED_S
    yield VersionRecord("photos", 2, at_s, 0.9, adopted=True, why="0.90 beats 0.70")
    why = "0.50 is below 0.60"
    yield VersionRecord("cameras", 0, at_s + 3, 0.5, adopted=False, why=why)


def plan(window: int) -> dict[str, object]:
    """As a plan file; in window 1 photos retrains."""
    photos = {"start": 0, "gpcs": 3, "task": "photos/inference"}
    cameras = {"start": 4, "gpcs": 2, "task": "cameras/inference"}
    trains = {"start": 4, "gpcs": 2, "task": "photos/retraining"}
    spare = {"start": 6, "gpcs": 1, "task": "cameras/inference"}
    slots = [{"instances": [photos, cameras, spare]} for _ in range(SLOTS)]
    if window == 1:
        slots[2:12] = [{"instances": [photos, trains, spare]}] * 10
    retraining = {"tenant": "photos", "start": 2, "end": 12, "gpcs": 2}
    return {
        "goodput": 1500.0 + window,
        "upper_bound": 1510.0 + window,
        "gap": 0.0067,
        "solver": "exact",
        "solve_s": 0.2,
        "retrainings": [retraining] if window == 1 else [],
        "slots": slots,
    }


def _blocks(window: int) -> Iterator[dict[str, object]]:
    """The instances of the plan."""
    spans = {"photos/inference": [(0, SLOTS)], "cameras/inference": [(0, SLOTS)]}
    if window == 1:
        spans["cameras/inference"] = [(0, 2), (12, SLOTS)]
        spans["photos/retraining"] = [(2, 12)]
    for task, stretches in spans.items():
        start, gpcs = (0, 3) if task == "photos/inference" else (4, 2)
        for begin, end in stretches:
            yield {"start": start, "gpcs": gpcs, "task": task, "from": begin, "until": end}
    yield {"start": 6, "gpcs": 1, "task": "cameras/inference", "from": 0, "until": SLOTS}


def _late(second: int, made: Made) -> int:
    return made.late if second % SLOTS < 5 else 0


def _tenant_window(number: int, name: str, made: Made) -> TenantWindowRecord:
    received = RATES_RPS[name] * SLOTS
    late, dropped, failed = 5 * made.late, SLOTS, 3
    in_time = received - late - dropped - failed
    accuracy = 0.9 if (name, number) == ("photos", 1) else 0.7
    return TenantWindowRecord(
        number,
        name,
        received,
        in_time,
        late,
        dropped,
        failed,
        goodput=in_time * accuracy,
        wrong=in_time * (1 - accuracy),
        labelled=in_time // 2,
        while_reconfiguring=4,
        accuracy_before=0.7,
        accuracy_after=accuracy,
        accuracy_estimated=0.85 if number == 1 else None,
        version=2 if (name, number) == ("photos", 1) else 1,
    )


def _seconds(made: Made) -> Iterator[SecondRecord]:
    """Every second so far, window 2 up to its middle; a forecast from the third one on."""
    for name, rate_rps in RATES_RPS.items():
        for second in range(int(2.5 * SLOTS)):
            late = _late(second, made)
            band = (rate_rps * 1.0, rate_rps * 0.8, rate_rps * 1.2) if second > 2 else (None,) * 3
            in_time = rate_rps - late - 1
            yield SecondRecord(name, second, rate_rps, in_time, late, 1, *band)


def _units(zero_s: float) -> Iterator[UnitRecord]:
    begin_s, change_s = zero_s - 3, zero_s + WINDOW_S + 2
    done_s = zero_s + WINDOW_S + RETRAINED_S
    yield _unit("3g@0#1", begin_s, 0, 3, "photos", "warming", zero_s, PARTS_S)
    yield _unit("3g@0#1", zero_s, 0, 3, "photos", "ready", None)
    yield _unit("2g@4#2", begin_s, 4, 2, "cameras", "warming", zero_s, PARTS_S)
    yield _unit("2g@4#2", zero_s, 4, 2, "cameras", "ready", change_s)
    yield _unit("2g@4#2", change_s, 4, 2, "cameras", "draining", change_s + 1)
    yield _unit("2g@4#2", change_s + 1, 4, 2, "photos", "training", done_s)
    yield _unit("2g@4#2", done_s, 4, 2, "cameras", "warming", done_s + 1, PARTS_S)
    yield _unit("2g@4#2", done_s + 1, 4, 2, "cameras", "ready", None)
    yield _unit("1g@6#3", zero_s + 1, 6, 1, None, "creating", zero_s + 2)
    yield _unit("1g@6#3", zero_s + 2, 6, 1, None, "idle", None)


def _unit(
    name: str,
    from_s: float,
    start: int,
    gpcs: int,
    tenant: str | None,
    state: str,
    to_s: float | None,
    parts_s: dict[str, float] | None = None,
) -> UnitRecord:
    task = "" if tenant is None else "retraining" if state == "training" else "inference"
    return UnitRecord(name, from_s, start, gpcs, tenant, task, state, to_s, parts_s or {})
