"""The same scenario live and simulated.

    python -m benchmarks.simulated_live [--quick] [--labels-at start] [--out FILE]
    python -m benchmarks.simulated_live --records FOLDER [--out FILE]

Without --records: a daemon on the emulated driver and `migrator load` run here, each in its own
process. With --records: the runs in FOLDER, which holds a scenario (YAML, with its profiles), and
per policy the daemon's records (POLICY.records.db) and what clients saw (POLICY.load.json).

Then the simulator runs the same arrivals under the same policy and forecaster from the same even
split, with the durations and accuracies that the live run measured (`measured_run.py`). Printed:
goodput and requests in time of both, per tenant and of all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from benchmarks.live_daemon import MIGRATOR, ROOT, environment, served, write_scenario
from benchmarks.machine import describe_machine
from benchmarks.measured_run import LiveRun, measured_run
from migrator.core.outcome import Tally
from migrator.forecast.selection import forecaster
from migrator.io.yaml_text import load_yaml
from migrator.policies.registry import policy
from migrator.records.outcome import RunOutcome
from migrator.records.store import read_records
from migrator.simulation.run import run
from migrator.workload.live import LiveScenario, read_live

AS_RECORDED = {"migrator": "migrator-required"}
"""Policy of the recorded runs -> the one that decides as it did: it retrained every tenant."""
POLICIES = ("migrator", "static-4-3", "paris")
WINDOW_S = 30
LOADS: Mapping[str, tuple[tuple[str, float], tuple[str, float]]] = {
    "light": (("azure", 9), ("alibaba", 4)),
    "heavy": (("azure", 18), ("alibaba", 10)),
    "bursty": (("azure-bursty", 12), ("azure", 9)),
}
"""Generator and requests per second of both tenants."""
SLOWER = 4
"""Than the example: what is compared are queues, batches and changes, not this machine."""
TRAINING_RATIO = 1.0
"""With one epoch: emulated retrainings take longer than this machine's, also where it is busy."""


@dataclass(frozen=True)
class Row:
    """One tenant, or all, of one run."""

    load: str
    policy: str
    seed: int
    tenant: str
    sent: int
    live_goodput: float
    simulated_goodput: float
    live_in_time: float
    simulated_in_time: float

    @property
    def difference(self) -> float:
        """Simulated goodput over live, less one."""
        if not self.live_goodput:
            return 0.0 if not self.simulated_goodput else float("inf")
        return self.simulated_goodput / self.live_goodput - 1


def scenario(folder: Path, load: str, windows: int, seed: int) -> Path:
    """examples/live.yaml with other arrivals and windows."""
    example = ROOT / "examples"
    document = _read(example / "live.yaml")
    document |= {"window_s": WINDOW_S, "windows": windows, "seed": seed}
    profiles = _read(example / "live.profiles.json")
    for profile in profiles["profiles"]:
        profile["training_ratio"] = TRAINING_RATIO
        for curve in profile["latency_ms"].values():
            curve |= {sms: SLOWER * value for sms, value in curve.items()}
    (folder / "live.profiles.json").write_text(json.dumps(profiles), encoding="utf-8")
    for tenant, (generator, rate_rps) in zip(document["tenants"], LOADS[load], strict=True):
        tenant["arrivals"] = {"generator": generator, "mean_rps": rate_rps}
        tenant["slo_ms"] *= SLOWER
        tenant["live"] = {**tenant["live"], "epochs": 1}
    return write_scenario(folder / "live.yaml", document)


def _read(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", load_yaml(path.read_text(encoding="utf-8")))


def compared(
    folder: Path, load: str, name: str, windows: int, seed: int, labels_at: str
) -> list[Row]:
    """One run, live and simulated."""
    path = scenario(folder, load, windows, seed)
    options = ("--policy", name, "--windows", str(windows))
    with served(path, folder / "state", *options) as daemon:
        sent = _loaded(path, daemon.url, labels_at)
        daemon.wait()
        records = daemon.records()
    run_live = LiveRun(records, sent)
    simulated = simulate(read_live(path), name, run_live, ())
    (folder / "load.json").write_text(json.dumps(sent), encoding="utf-8")
    return list(_rows(load, name, seed, sent, simulated))


def simulate(live: LiveScenario, name: str, own: LiveRun, others: Sequence[LiveRun]) -> RunOutcome:
    """A live run again, in virtual time, with what it measured."""
    chosen = policy(name)
    windows = len(own.records.windows)
    scenario = replace(live.scenario, windows=windows)
    measured = measured_run(replace(live, scenario=scenario), chosen, own, others)
    ahead = forecaster(own.records.windows[0].forecaster)
    return run(scenario, chosen, ahead, even_start=True, measured=measured)


def from_records(folder: Path) -> list[Row]:
    """Every run in a folder, simulated."""
    path = _scenario_in(folder)
    live = read_live(path)
    with tempfile.TemporaryDirectory(prefix="simulated-live-") as temporary:
        runs = {
            path.name.removesuffix(".records.db"): _live_run(path, Path(temporary))
            for path in sorted(folder.glob("*.records.db"))
        }
    if not runs:
        raise SystemExit(f"{folder}: no POLICY.records.db with its POLICY.load.json; give another")
    rows: list[Row] = []
    for name, own in runs.items():
        others = [runs_of_other for other, runs_of_other in runs.items() if other != name]
        policy_name = AS_RECORDED.get(own.records.run.policy, own.records.run.policy)
        simulated = simulate(live, policy_name, own, others)
        rows += _rows(path.stem, name, live.scenario.seed, own.sent, simulated)
    return rows


def _scenario_in(folder: Path) -> Path:
    paths = [
        path
        for path in (*folder.glob("*.yaml"), *folder.glob("*.yml"))
        if isinstance(_read(path), dict) and "live" in _read(path)
    ]
    if len(paths) != 1:
        raise SystemExit(f"{folder}: {len(paths)} live scenarios (YAML); there must be one")
    return paths[0]


def _live_run(records: Path, temporary: Path) -> LiveRun:
    """Read from a copy: opening a database may write beside it."""
    copy = temporary / records.name
    shutil.copyfile(records, copy)
    load = records.with_name(records.name.replace(".records.db", ".load.json"))
    return LiveRun(read_records(copy), json.loads(load.read_text(encoding="utf-8")))


def _loaded(path: Path, url: str, labels_at: str) -> Mapping[str, Any]:
    command = [*MIGRATOR, "load", str(path), "--url", url, "--now", "--json"]
    command += ["--labels-at", labels_at]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment())
    reply: Mapping[str, Any] = json.loads(done.stdout)
    return reply


def _rows(
    load: str, name: str, seed: int, sent: Mapping[str, Any], simulated: RunOutcome
) -> Iterable[Row]:
    both = {**simulated.tenants, "all": simulated.tally}
    for tenant, tally in both.items():
        counts = sent if tenant == "all" else sent["tenants"][tenant]
        yield _row(load, name, seed, tenant, counts, tally)


def _row(
    load: str, name: str, seed: int, tenant: str, live: Mapping[str, Any], simulated: Tally
) -> Row:
    return Row(
        load,
        name,
        seed,
        tenant,
        live["sent"],
        live["goodput"],
        round(simulated.goodput, 1),
        round(live["slo_attainment"], 4),
        round(simulated.slo_attainment, 4),
    )


def table(rows: Iterable[Row]) -> str:
    """A line per run and tenant."""
    lines = [
        f"{'scenario':8} {'policy':11} {'seed':>4} {'tenant':10} {'sent':>7} {'goodput live':>12} "
        f"{'simulated':>9} {'difference':>10} {'in time live':>12} {'simulated':>9}"
    ]
    for row in rows:
        lines.append(
            f"{row.load:8} {row.policy:11} {row.seed:4} {row.tenant:10} {row.sent:7} "
            f"{row.live_goodput:12.0f} {row.simulated_goodput:9.0f} {row.difference:+10.1%} "
            f"{row.live_in_time:12.1%} {row.simulated_in_time:9.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=Path, help="a folder with live runs to simulate")
    parser.add_argument("--load", choices=LOADS, action="append", help="default all")
    parser.add_argument("--policy", action="append", help=f"default {', '.join(POLICIES)}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--windows", type=int, default=4, help=f"of {WINDOW_S} s each")
    parser.add_argument("--labels-at", default="feedback", choices=("feedback", "start"))
    parser.add_argument("--quick", action="store_true", help="one run of 3 windows")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--keep", type=Path, help="a folder for what the runs leave behind")
    options = parser.parse_args()
    about: dict[str, Any] = {"machine": describe_machine()}
    if options.records is not None:
        rows = from_records(options.records)
        print(table(rows))
    else:
        about |= {"load_average": round(os.getloadavg()[0], 2), "window_s": WINDOW_S}
        rows = _emulated(options)
        about |= {"windows": options.windows, "labels_at": options.labels_at}
    worst = max(abs(row.difference) for row in rows if row.tenant == "all")
    worst_tenant = max(abs(row.difference) for row in rows if row.tenant != "all")
    print(
        f"goodput simulated against live: at most {worst:.1%} apart for all tenants together, "
        f"{worst_tenant:.1%} for one tenant"
    )
    if options.out:
        entries = [{**asdict(row), "difference": round(row.difference, 4)} for row in rows]
        result = {**about, "rows": entries}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _emulated(options: argparse.Namespace) -> list[Row]:
    """Runs on the emulated driver, here and now."""
    if options.quick:
        options.load, options.policy = ["heavy"], ["migrator"]
        options.seeds, options.windows = 1, 3
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="simulated-live-") as temporary:
        for load in options.load or LOADS:
            for name in options.policy or POLICIES:
                for seed in range(options.seeds):
                    folder = (options.keep or Path(temporary)) / f"{load}-{name}-{seed}"
                    folder.mkdir(parents=True)
                    rows += compared(folder, load, name, options.windows, seed, options.labels_at)
                    print(table(rows[-3:]).split("\n", int(len(rows) > 3))[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
