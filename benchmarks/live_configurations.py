"""`migrator` live with one way to retrain every tenant and with several, on the same requests.

    python -m benchmarks.live_configurations --out FOLDER -- --driver mps
    python -m benchmarks.live_configurations --out FOLDER --seeds 1 -- --driver emulated
    python -m benchmarks.live_configurations --out FOLDER --seeds 0    # only the table

One cell of the live grid: two tenants whose retraining takes 30% of 60 s on a third of the board,
in four windows of 30 s. Both begin with the same pre-trained models and run seed by seed in turn
with `benchmarks/gpu/live.py`, whose options follow `--`. The same command continues where it was
stopped; with `--budget` it begins nothing that would end later. Writes `configurations.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.live import MARKER, PROFILES, START_S, Run, is_done
from benchmarks.live_cells import PROFILE, WINDOWS, Cell, cell_document
from benchmarks.live_daemon import environment, write_scenario
from migrator.records.store import read_records

CELL = Cell("two", "mixed", 0.8, 30)
WINDOW_S = 30
ONE, SEVERAL = "one", "several"
OPTIONS = {ONE: (), SEVERAL: ("--configurations",)}


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, help="seconds in which the last run must end")
    parser.add_argument("options", nargs="*", help="of benchmarks/gpu/live.py, after --")
    asked = parser.parse_args()
    began_s = time.monotonic()
    asked.out.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seeds):
        for kind in (ONE, SEVERAL):
            left_s = None if asked.budget is None else asked.budget - time.monotonic() + began_s
            _run(kind, asked.out, seed, asked.options, left_s)
    rows = list(rows_of(asked.out))
    path = asked.out / "configurations.json"
    path.write_text(json.dumps({"cell": CELL.name, "runs": rows}, indent=1) + "\n")
    print("\n".join(table(rows)))


def _run(kind: str, out: Path, seed: int, options: Sequence[str], left_s: float | None) -> None:
    """All seeds up to this one; what is there is not run again."""
    folder = out / kind
    if is_done(folder, Run(seed, "migrator")):
        return
    if left_s is not None and left_s < WINDOWS * WINDOW_S + START_S:
        print(f"left for another time: {kind}, seed {seed}", flush=True)
        return
    begun, first = folder / "begun", out / ONE
    if kind != ONE and not begun.exists() and (first / "begun").exists():
        folder.mkdir(exist_ok=True)
        shutil.copytree(first / "begun", begun)
        (folder / "scenario").mkdir(exist_ok=True)
        shutil.copy(first / "scenario" / PROFILES, folder / "scenario")
    if "emulated" not in options and "--profile" not in options:
        options = ("--profile", str(PROFILE), *options)
    cell = write_scenario(out / "cell.yaml", {**cell_document(CELL), "window_s": WINDOW_S})
    command = [sys.executable, "-m", "benchmarks.gpu.live", "--scenario", str(cell), "--no-page"]
    command += ["--out", str(folder), "--policies", "migrator", "--seeds", str(seed + 1)]
    command += [*OPTIONS[kind], *options]
    if left_s is not None:
        command += ["--budget", f"{left_s:.0f}"]
    print(f"{kind}, seed {seed}", flush=True)
    subprocess.run(command, check=True, env=environment())


def rows_of(out: Path) -> Iterator[dict[str, Any]]:
    """One row per run: what the clients counted, and every retraining."""
    for kind in (ONE, SEVERAL):
        for marker in sorted((out / kind).glob(f"runs/seed*/migrator/{MARKER}")):
            about = json.loads(marker.read_text(encoding="utf-8"))
            sent = json.loads(marker.with_name("load.json").read_text(encoding="utf-8"))
            yield {
                "configurations": kind,
                "seed": about["seed"],
                "driver": about["driver"],
                "sent": sent["sent"],
                "goodput": sent["goodput"],
                "retrainings": list(_retrainings(marker.parent)),
            }


def _retrainings(folder: Path) -> Iterator[dict[str, Any]]:
    """Read from a copy: opening a database may write beside it."""
    with tempfile.TemporaryDirectory() as temporary:
        for path in folder.glob("records.db*"):
            shutil.copy(path, temporary)
        records = read_records(Path(temporary, "records.db"))
    after = {(row.window, row.tenant): row for row in records.tenant_windows}
    for row in records.retrainings:
        if row.taken_s is not None:
            window = after.get((row.window, row.tenant))
            yield {
                "window": row.window,
                "tenant": row.tenant,
                "configuration": row.configuration,
                "planned_s": row.planned_s,
                "taken_s": row.taken_s,
                "accuracy_before": window and window.accuracy_before,
                "accuracy_estimated": row.accuracy_estimated,
                "accuracy_after": window and window.accuracy_after,
            }


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Goodput of what was sent by seed, and how often every configuration was carried out."""
    shares = {
        (row["configurations"], row["seed"]): row["goodput"] / max(1, row["sent"]) for row in rows
    }
    yield "| seed | one | several | gain |"
    yield "|---|---|---|---|"
    gains = []
    for seed in sorted({seed for _, seed in shares}):
        one, several = (shares.get((kind, seed)) for kind in (ONE, SEVERAL))
        if one and several is not None:
            gains.append(several / one - 1)
            yield f"| {seed} | {one:.1%} | {several:.1%} | {gains[-1]:+.1%} |"
    if gains:
        yield f"| mean | | | {statistics.fmean(gains):+.1%} |"
    for kind in (ONE, SEVERAL):
        every = [
            (each["configuration"] or "the only one", each["taken_s"])
            for row in rows
            if row["configurations"] == kind
            for each in row["retrainings"]
        ]
        for name in dict.fromkeys(name for name, _ in every):
            taken = [seconds for other, seconds in every if other == name]
            yield f"{kind}: {name}: {len(taken)} retrainings, {statistics.fmean(taken):.1f} s each"


if __name__ == "__main__":
    main()
