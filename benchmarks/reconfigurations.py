"""Reconfigurations and weight swaps under load: python -m benchmarks.reconfigurations [--quick]

A real daemon on the emulated driver follows a policy that changes instances all the time and
retrains both tenants in every window (changing_policy.py), while clients in a process of their
own send requests and labels. Counted: requests that failed, answers of a version that was not to
serve any more. Measured for every new instance: how long it was asked for and did not serve,
beside what it takes where nothing is prepared (cold_start.py), in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.changing_policy import FILE, SLOTS
from benchmarks.cold_start import Cold, measured
from benchmarks.live_daemon import ROOT, LiveDaemon, environment, served, write_scenario
from benchmarks.machine import describe_machine
from benchmarks.missed_instances import Asked, Decided, Room, Visible, asked_for, followed, visible
from migrator.core.catalogue import board
from migrator.learn.registry import benchmark, build
from migrator.records.rows import RunRecords
from migrator.workload.live import read_live

GPU, SLO_MS, BATCH, PIXELS = "A100-40GB", 400, 4, 16
RATES_RPS = {"photos": 24, "cameras": 10}
TRAINING_RATIO = 2.0
"""So that an emulated retraining takes longer than this machine's, also where it is busy."""
PLANS_OF_OURS = {Room.RETRAINED: 0.665, Room.SAME: 0.284, Room.TAKEN: 0.051, Room.IDLE: 0.0}
"""How often each kind is in plans of `migrator` (kinds_of_changes.py): a plan under load leaves no
slices idle."""


@dataclass(frozen=True)
class Requests:
    """What became of all requests."""

    sent: int
    failed: int
    """No answer, or a status of 500 and above."""
    refused: int
    """429 and other statuses below 500."""
    late: int
    wrong_version: int
    median_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Hidden:
    """New instances of one kind."""

    kind: str
    count: int
    made: int
    cold_s: float
    """Of one."""
    missed_median_s: float
    missed_p90_s: float
    missed_most_s: float
    hidden: float
    """Of the cold overhead of all of them."""


def scenario(folder: Path, windows: int) -> Path:
    """Two tenants with steady arrivals, and profiles for the emulated driver."""
    for name, rate in RATES_RPS.items():
        rows = "\n".join(f"{second},{rate}" for second in range(windows * SLOTS))
        (folder / f"{name}.csv").write_text(f"second,count\n{rows}\n", encoding="utf-8")
    text = (ROOT / "examples" / "live.profiles.json").read_text(encoding="utf-8")
    profiles = json.loads(text)
    for profile in profiles["profiles"]:
        profile["training_ratio"] = TRAINING_RATIO
    (folder / "profiles.json").write_text(json.dumps(profiles), encoding="utf-8")
    build("small-cnn", benchmark("nc-synthetic").classes, 0, PIXELS).save(
        folder / "begin.safetensors"
    )
    tenants = [
        {
            "name": name,
            "model": "small-cnn",
            "profile": "profiles.json",
            "slo_ms": SLO_MS,
            "batch": BATCH,
            "arrivals": {"trace": f"{name}.csv"},
            "live": {
                "benchmark": "nc-synthetic",
                "pixels": PIXELS,
                "epochs": 2,
                "replay": 0,
                "weights": "begin.safetensors",
            },
        }
        for name in RATES_RPS
    ]
    document = {"version": 1, "gpu": GPU, "window_s": SLOTS, "windows": windows, "tenants": tenants}
    policy = {"policy": "benchmarks.changing_policy:Changing"}
    return write_scenario(folder / "changing.yaml", {**document, **policy})


def run(folder: Path, windows: int, cold_runs: int) -> Mapping[str, Any]:
    """One run, measured."""
    path = scenario(folder, windows)
    live = read_live(path)
    os.environ[FILE] = str(folder / "changes.jsonl")
    with served(path, folder / "state", "--windows", str(windows)) as daemon:
        weights = next((daemon.folder / "models" / "photos").glob("*.safetensors"))
        cold = measured(folder / "cold", GPU, live.tenants[0], weights, cold_runs)
        answers = loaded(path, daemon, folder / "answers.npz")
        daemon.wait()
        records = daemon.records()
    new = list(visible(_asked(records, folder / "changes.jsonl"), records.units))
    adopted = [version for version in records.versions if version.adopted and version.number > 1]
    return {
        "windows": windows,
        "requests": asdict(counted(answers, records)),
        "reconfigurations": len(new),
        "swaps": len(adopted),
        "cold": asdict(cold),
        "hidden": [asdict(kind) for kind in hidden(new, cold)],
        "hidden_in_plans_of_ours": weighted(new, cold),
        "never_came": sum(not instance.came for instance in new),
    }


def loaded(path: Path, daemon: LiveDaemon, out: Path) -> Mapping[str, Any]:
    """The clients' process to its end; what it wrote down."""
    command = [sys.executable, "-m", "benchmarks.watched_load", str(path), daemon.url, str(out)]
    subprocess.run(command, check=True, env=environment())
    return dict(np.load(out))


def _asked(records: RunRecords, changes: Path) -> list[Asked]:
    """Every new instance that the windows' plans asked for."""
    decided = map(Decided.read, changes.read_text(encoding="utf-8").splitlines())
    begins_s = [window.began_s for window in records.windows]
    return list(asked_for(board(GPU), *followed(decided, begins_s, SLOTS, 1.0)))


def counted(answers: Mapping[str, Any], records: RunRecords) -> Requests:
    """The requests, and answers of versions that were not to serve any more."""
    status, sent_s = answers["status"], answers["sent_s"]
    took_s = answers["answered_s"] - answers["due_s"]
    answered = status == 200
    wrong = 0
    for number, name in enumerate(RATES_RPS):
        own = answered & (answers["tenant"] == number)
        wrong += wrong_versions(
            answers["version"][own],
            sent_s[own],
            {
                version.number: version.at_s
                for version in records.versions
                if version.tenant == name
            },
        )
    median_ms, p99_ms = (1e3 * np.percentile(took_s[answered], (50, 99))).round(1)
    return Requests(
        sent=len(status),
        failed=int(((status < 0) | (status >= 500)).sum()),
        refused=int(((status > 200) & (status < 500)).sum()),
        late=int((took_s[answered] > SLO_MS / 1e3).sum()),
        wrong_version=wrong,
        median_ms=float(median_ms),
        p99_ms=float(p99_ms),
    )


def wrong_versions(versions: Any, sent_s: Any, serves_from_s: Mapping[int, float]) -> int:
    """Answers of a version that nobody adopted, or that had been replaced before the question."""
    wrong = 0
    for version, asked_s in zip(versions, sent_s, strict=True):
        newer = [at_s for number, at_s in serves_from_s.items() if number > version]
        wrong += version not in serves_from_s or any(asked_s > at_s for at_s in newer)
    return wrong


def hidden(new: list[Visible], cold: Cold) -> list[Hidden]:
    """Per kind, and all together."""
    rows = []
    for room in Room:
        own = [instance for instance in new if instance.asked.room is room]
        if own:
            rows.append(_hidden(room, own, _cold_s(cold, room)))
    all_cold = [_cold_s(cold, instance.asked.room) for instance in new]
    rows.append(_hidden("all", new, sum(all_cold) / max(1, len(all_cold))))
    return rows


def _cold_s(cold: Cold, room: Room) -> float:
    """Where something was there before, it has to go first."""
    return cold.total_s(room=room in (Room.IDLE, Room.SAME))


def _hidden(kind: str, new: list[Visible], cold_s: float) -> Hidden:
    missed_s = np.array([instance.missed_s for instance in new])
    median_s, p90_s = np.percentile(missed_s, (50, 90)).round(3)
    return Hidden(
        kind=str(kind),
        count=len(new),
        made=sum(instance.made for instance in new),
        cold_s=round(cold_s, 3),
        missed_median_s=float(median_s),
        missed_p90_s=float(p90_s),
        missed_most_s=round(float(missed_s.max()), 3),
        hidden=round(1 - float(missed_s.sum()) / (cold_s * len(new)), 4),
    )


def weighted(new: list[Visible], cold: Cold) -> float:
    """Hidden of the cold overhead with the kinds as often as in plans of ours."""
    by_kind = {kind.kind: kind for kind in hidden(new, cold)}
    kinds = {room: part for room, part in PLANS_OF_OURS.items() if part and str(room) in by_kind}
    whole_s = sum(part * by_kind[str(room)].cold_s for room, part in kinds.items())
    kept_s = sum(
        part * by_kind[str(room)].cold_s * by_kind[str(room)].hidden for room, part in kinds.items()
    )
    return round(kept_s / whole_s, 4)


def shown(result: Mapping[str, Any]) -> str:
    """The run as a table."""
    requests, cold = result["requests"], result["cold"]
    lines = [
        f"{result['reconfigurations']} reconfigurations, {result['swaps']} weight swaps, "
        f"{result['never_came']} instances that never came",
        f"{requests['sent']} requests: {requests['failed']} failed, {requests['refused']} refused, "
        f"{requests['late']} late, {requests['wrong_version']} of a version replaced before; "
        f"median {requests['median_ms']:.0f} ms, 99% {requests['p99_ms']:.0f} ms",
        f"cold: create {cold['create_s']:.2f} s, process {cold['process_s']:.2f} s, destroy "
        f"{cold['destroy_s']:.2f} s (medians of {cold['runs']})",
        "",
        f"{'new instances':24} {'count':>5} {'made':>5} {'cold s':>7} {'missed s':>9} {'90%':>6} "
        f"{'most':>6} {'hidden':>7}",
    ]
    for row in result["hidden"]:
        lines.append(
            f"{row['kind']:24} {row['count']:5} {row['made']:5} {row['cold_s']:7.2f} "
            f"{row['missed_median_s']:9.3f} {row['missed_p90_s']:6.2f} "
            f"{row['missed_most_s']:6.2f} {row['hidden']:7.1%}"
        )
    lines.append(f"{'as in plans of ours':72} {result['hidden_in_plans_of_ours']:7.1%}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=17, help=f"of {SLOTS} s each")
    parser.add_argument("--quick", action="store_true", help="3 windows")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    windows = 3 if options.quick else options.windows
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="reconfigurations-") as folder:
        result = run(Path(folder), windows, 3 if options.quick else 5)
    print(shown(result))
    if options.out:
        about = {"machine": describe_machine(), "load_average": round(load_average, 2)}
        options.out.write_text(json.dumps({**about, **result}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
