"""`migrator` live with one way to retrain every tenant and with several, on the same requests.

    python -m benchmarks.live_configurations FOLDER --driver mps --budget 540
    python -m benchmarks.live_configurations FOLDER --driver emulated --seeds 1
    python -m benchmarks.live_configurations FOLDER --table

One cell of the live grid: two tenants whose retraining takes 30% of 60 s on a third of the board,
in four windows of 30 s. Further options are those of `benchmarks/gpu/live.py`, which begins every
run with the same pre-trained models, in turn with one configuration and with several. The same
command continues where it was stopped. Writes `configurations.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.live import MARKER
from benchmarks.live_cells import PROFILE, Cell, cell_document
from benchmarks.live_daemon import environment, write_scenario
from migrator.core.comparison import t95
from migrator.records.store import read_records

CELL = Cell("two", "mixed", 0.8, 30)
WINDOW_S, SEEDS = 30, 3
POLICY = "migrator"


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", action="store_true", help="run nothing")
    asked, options = parser.parse_known_args()
    if not asked.table:
        run(asked.out, options)
    rows = list(rows_of(asked.out))
    text = json.dumps({"cell": CELL.name, "runs": rows}, indent=1) + "\n"
    (asked.out / "configurations.json").write_text(text, encoding="utf-8")
    print("\n".join(table(rows)))


def run(out: Path, options: Sequence[str]) -> None:
    """All runs that are missing and fit into the budget."""
    out.mkdir(parents=True, exist_ok=True)
    if "emulated" not in options and "--profile" not in options:
        options = ("--profile", str(PROFILE), *options)
    cell = write_scenario(out / "cell.yaml", {**cell_document(CELL), "window_s": WINDOW_S})
    command = [sys.executable, "-m", "benchmarks.gpu.live", "--scenario", str(cell)]
    command += ["--out", str(out), "--policies", POLICY, "--seeds", str(SEEDS)]
    subprocess.run(
        [*command, "--configurations", "--no-page", *options], check=True, env=environment()
    )


def rows_of(out: Path) -> Iterator[dict[str, Any]]:
    """One row per run: what the clients counted, and every retraining."""
    for marker in sorted(out.glob(f"runs/seed*/*/{MARKER}")):
        about = json.loads(marker.read_text(encoding="utf-8"))
        sent = json.loads(marker.with_name("load.json").read_text(encoding="utf-8"))
        yield {
            "several": about["configurations"],
            "seed": about["seed"],
            "driver": about["driver"],
            "sent": sent["sent"],
            "goodput": sent["goodput"],
            "tenants": {
                name: {key: counted[key] for key in ("sent", "in_time", "goodput")}
                for name, counted in sent["tenants"].items()
            },
            "retrainings": list(_retrainings(marker.parent)),
        }


def _retrainings(folder: Path) -> Iterator[dict[str, Any]]:
    """Read from a copy: opening a database may write beside it."""
    with tempfile.TemporaryDirectory() as temporary:
        for path in folder.glob("records.db*"):
            shutil.copy(path, temporary)
        records = read_records(Path(temporary, "records.db"))
    windows = {(row.window, row.tenant): row for row in records.tenant_windows}
    for row in records.retrainings:
        if row.taken_s is not None:
            window = windows.get((row.window, row.tenant))
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
    shares = {(row["seed"], row["several"]): _shares(row) for row in rows}
    tenants = list(rows[0]["tenants"]) if rows else []
    yield f"| seed | one | several | gain | {' | '.join(tenants)} |"
    yield "|---" * (4 + len(tenants)) + "|"
    gains = []
    for seed in sorted({seed for seed, several in shares if several}):
        if (seed, False) in shares:
            one, several = shares[seed, False], shares[seed, True]
            gains.append(several[""] / one[""] - 1)
            parts = [f"{one[name]:.1%} → {several[name]:.1%}" for name in tenants]
            cells = [str(seed), f"{one['']:.1%}", f"{several['']:.1%}", f"{gains[-1]:+.1%}", *parts]
            yield f"| {' | '.join(cells)} |"
    if len(gains) > 1:
        half = t95(len(gains) - 1) * statistics.stdev(gains) / math.sqrt(len(gains))
        yield f"| mean | | | {statistics.fmean(gains):+.1%} ± {half:.1%} |{' |' * len(tenants)}"
    yield ""
    yield "| configuration | retrainings | seconds | over planned |"
    yield "|---|---|---|---|"
    taken: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for retraining in row["retrainings"]:
            taken.setdefault(retraining["configuration"] or "the only one", []).append(retraining)
    for name, those in taken.items():
        seconds = statistics.fmean(one["taken_s"] for one in those)
        over = statistics.median(one["taken_s"] / one["planned_s"] for one in those)
        yield f"| {name} | {len(those)} | {seconds:.1f} | {over:.2f} |"


def _shares(row: dict[str, Any]) -> dict[str, float]:
    """Goodput over what was sent, of every tenant and, as "", of all."""
    counts = {"": row, **row["tenants"]}
    return {name: count["goodput"] / max(1, count["sent"]) for name, count in counts.items()}


if __name__ == "__main__":
    main()
