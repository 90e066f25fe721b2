"""The same scenario live and simulated: python benchmarks/simulated_live.py [--quick] [--out FILE]

Live: a daemon on the emulated driver and `migrator load`, each in its own process. Simulated: the
same arrivals, the same policy and forecaster, from the same even split, with what only a live run
can find out put in: accuracies before and after each retraining, how long those took, what a new
instance took. Then goodput and requests in time of both, per tenant and in all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from found_live import as_found, even_split
from live_daemon import HERE, MIGRATOR, environment, served, write_scenario
from machine import describe_machine

from migrator.core.outcome import RunOutcome, Tally
from migrator.forecast.registry import forecaster
from migrator.io.yaml_file import load_yaml
from migrator.policies.registry import policy
from migrator.simulate.run import run
from migrator.workload.live import read_live

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
    def ratio(self) -> float:
        """Live over simulated goodput."""
        return self.live_goodput / self.simulated_goodput if self.simulated_goodput else 1.0


def scenario(folder: Path, load: str, windows: int, seed: int) -> Path:
    """examples/live.yaml with other arrivals and windows."""
    example = HERE.parent / "examples"
    told = _read(example / "live.yaml")
    told |= {"window_s": WINDOW_S, "windows": windows, "seed": seed}
    profiles = _read(example / "live.profiles.json")
    for each in profiles["profiles"]:
        each["training_ratio"] = TRAINING_RATIO
        for curve in each["latency_ms"].values():
            curve |= {sms: SLOWER * value for sms, value in curve.items()}
    (folder / "live.profiles.json").write_text(json.dumps(profiles), encoding="utf-8")
    for tenant, (generator, rate_rps) in zip(told["tenants"], LOADS[load], strict=True):
        tenant["arrivals"] = {"generator": generator, "mean_rps": rate_rps}
        tenant["slo_ms"] *= SLOWER
        tenant["live"] = {**tenant["live"], "epochs": 1}
    return write_scenario(folder / "live.yaml", told)


def _read(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", load_yaml(path.read_text(encoding="utf-8")))


def compared(folder: Path, load: str, name: str, windows: int, seed: int) -> list[Row]:
    """One run, live and simulated."""
    path = scenario(folder, load, windows, seed)
    options = ("--policy", name, "--windows", str(windows))
    with served(path, folder / "state", *options) as daemon:
        sent = _loaded(path, daemon.url)
        daemon.wait()
        records = daemon.records()
    live = read_live(path)
    found = as_found(live, records, sent)
    simulated = run(
        found, policy(name), forecaster(found.forecaster), begin=even_split(found, policy(name))
    )
    (folder / "load.json").write_text(json.dumps(sent), encoding="utf-8")
    return list(_rows(load, name, seed, sent, simulated))


def _loaded(path: Path, url: str) -> Mapping[str, Any]:
    command = [*MIGRATOR, "load", str(path), "--url", url, "--now", "--json"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment())
    told: Mapping[str, Any] = json.loads(said.stdout)
    return told


def _rows(
    load: str, name: str, seed: int, sent: Mapping[str, Any], simulated: RunOutcome
) -> Iterable[Row]:
    both = {**simulated.tenants, "all": simulated.tally}
    for tenant, tally in both.items():
        told = sent if tenant == "all" else sent["tenants"][tenant]
        yield _row(load, name, seed, tenant, told, tally)


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


def shown(rows: Iterable[Row]) -> str:
    """A line per run and tenant."""
    lines = [
        f"{'load':8} {'policy':11} {'seed':>4} {'tenant':8} {'sent':>6} {'goodput live':>12} "
        f"{'simulated':>9} {'ratio':>7} {'in time live':>12} {'simulated':>9}"
    ]
    for each in rows:
        lines.append(
            f"{each.load:8} {each.policy:11} {each.seed:4} {each.tenant:8} {each.sent:6} "
            f"{each.live_goodput:12.0f} {each.simulated_goodput:9.0f} {each.ratio:7.3f} "
            f"{each.live_in_time:12.1%} {each.simulated_in_time:9.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", choices=LOADS, action="append", help="default all")
    parser.add_argument("--policy", action="append", help=f"default {', '.join(POLICIES)}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--windows", type=int, default=4, help=f"of {WINDOW_S} s each")
    parser.add_argument("--quick", action="store_true", help="one run of 3 windows")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--keep", type=Path, help="a folder for what the runs leave behind")
    options = parser.parse_args()
    if options.quick:
        options.load, options.policy = ["heavy"], ["migrator"]
        options.seeds, options.windows = 1, 3
    load_average, rows = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory(prefix="simulated-live-") as temporary:
        for load in options.load or LOADS:
            for name in options.policy or POLICIES:
                for seed in range(options.seeds):
                    folder = (options.keep or Path(temporary)) / f"{load}-{name}-{seed}"
                    folder.mkdir(parents=True)
                    rows += compared(folder, load, name, options.windows, seed)
                    print(shown(rows[-3:]).split("\n", int(len(rows) > 3))[-1], flush=True)
    worst = max(abs(each.ratio - 1) for each in rows if each.tenant == "all")
    print(f"goodput of all tenants, live against simulated: at most {worst:.1%} apart")
    if options.out:
        about = {"machine": describe_machine(), "load_average": round(load_average, 2)}
        told = [{**asdict(each), "ratio": round(each.ratio, 4)} for each in rows]
        result = {**about, "windows": options.windows, "window_s": WINDOW_S, "rows": told}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
