"""How `migrator` compares with every other policy when one thing at a time is changed.

    python -m benchmarks.settings --out docs/results            # all settings, two seeds
    python -m benchmarks.settings --only tenants,gains --seeds 0

The base setting: two tenants on an H200, load 0.8, generated arrivals, four windows of 200 s, an
accuracy that a retraining lifts from about 0.55 to 0.85. Every other setting changes one thing of
it. The lead is the goodput of `migrator` over that of the best policy that neither plans with it
nor knows the future.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import describe_machine
from migrator.core.catalogue import board as board_named
from migrator.core.profiles import Service, profile
from migrator.core.scenario import Scenario
from migrator.simulation.compare import SimulationJob, run_all
from migrator.workload.capacity import highest_rps
from migrator.workload.file import read_scenario

WINDOWS = 4
HISTORY_S = 1200
MODELS = ("resnet-50", "bert-base", "mobilenet-v2", "vit-b-16", "inception-v3", "convnext-b")
KINDS = ("azure", "alibaba", "alibaba-steady", "azure-bursty", "twitter")
SECONDS = {1: 90, 2: 50, 3: 35, 4: 28}
OURS = ("migrator", "migrator-once", "migrator-paper")
PEERS = (
    *("equal-mig", "static-6-1", "static-5-2", "static-4-3", "miso"),
    *("paris", "paris-reconfiguring", "ekya", "astraea"),
)
POLICIES = (*OURS, *PEERS, "oracle")
Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """One cell: what differs from the base setting."""

    group: str
    name: str
    board: str = "H200-141GB"
    models: tuple[str, ...] = MODELS[:2]
    kinds: tuple[str, ...] = KINDS
    load: float = 0.8
    parts: tuple[float, ...] | None = None
    """Each tenant's part of the load; None: equal parts."""
    slo_ms: float = 100.0
    window_s: int = 200
    slot_s: float = 1.0
    pre: float = 0.55
    post: float = 0.85
    seconds: tuple[tuple[int, float], ...] = tuple(SECONDS.items())
    windows: int = WINDOWS
    estimate_error: float = 0.0
    pattern: Callable[[int, Counts, int], Counts] | None = None
    """(tenant, second, window_s) -> rate relative to the mean; None: generated arrivals."""
    history_s: int = HISTORY_S


def _daily(tenant: int, second: Counts, window_s: int) -> Counts:
    """A wave whose period is a window; tenants are half a period apart."""
    wave: Counts = np.sin(2 * np.pi * (second / window_s + tenant / 2))
    return 1 + 0.7 * wave


def _on_off(tenant: int, second: Counts, window_s: int) -> Counts:
    """One of the tenants is busy at a time, for a quarter of a window each."""
    turn = (second // (window_s / 4) + tenant) % 2
    return 0.3 + 1.4 * turn


def _swap(tenant: int, second: Counts, window_s: int) -> Counts:
    """Loads that swap at every window's start."""
    turn = (second // window_s + tenant) % 2
    return 0.4 + 1.2 * turn


def _spike(tenant: int, second: Counts, window_s: int) -> Counts:
    """One tenant gets four times its rate for half a minute, once."""
    at = HISTORY_S + 1.4 * window_s
    inside: Counts = ((second >= at) & (second < at + 30)).astype(np.float64)
    return 1.0 + 3.0 * inside if tenant == 0 else np.ones_like(second)


def _step(tenant: int, second: Counts, window_s: int) -> Counts:
    """Two tenants change places for good in the middle of the run."""
    later: Counts = (second >= HISTORY_S + 2.0 * window_s).astype(np.float64)
    return 0.5 + later if tenant == 0 else 1.5 - later


def settings() -> Iterator[Setting]:
    """All settings, fixed before any of them was run."""
    base = Setting("base", "base")
    yield base
    for count in (3, 4, 5, 6, 7):
        yield replace(base, group="tenants", name=f"{count} tenants", models=_models(count))
    uneven = {2: (0.7, 0.3), 3: (0.6, 0.25, 0.15), 4: (0.5, 0.25, 0.15, 0.1)}
    for count, parts in uneven.items():
        name = f"{count} uneven tenants"
        yield replace(base, group="tenants", name=name, models=_models(count), parts=parts)
    for load in (0.3, 0.6, 0.9, 1.2):
        yield replace(base, group="load", name=f"load {load}", load=load)
    for slo_ms in (20.0, 300.0):
        yield replace(base, group="objective", name=f"objective {slo_ms:g} ms", slo_ms=slo_ms)
    yield replace(base, group="window", name="window 60 s", window_s=60)
    yield replace(base, group="slot", name="slot 5 s", slot_s=5.0)
    for name, pre, post in (
        ("no gain", 0.8, 0.8),
        ("gain 2 points", 0.78, 0.80),
        ("gain -3 points", 0.80, 0.77),
        ("gain 45 points", 0.45, 0.9),
    ):
        yield replace(base, group="gain", name=name, pre=pre, post=post)
    for windows in (1, 2, 3):
        longer = tuple((gpcs, s * windows * 200 / SECONDS[1]) for gpcs, s in SECONDS.items())
        name = f"retraining of {windows} windows on 1g"
        yield replace(base, group="length", name=name, seconds=longer)
    for error in (-0.3, 0.3):
        name = f"estimates {error:+.1f}"
        wrong = replace(base, group="estimate", name=name, estimate_error=error)
        yield replace(wrong, pre=0.8, post=0.8) if error > 0 else wrong
    for pattern in (_daily, _on_off, _swap, _spike, _step):
        name = pattern.__name__.removeprefix("_").replace("_", "/")
        yield replace(base, group="arrivals", name=name, pattern=pattern)
    for kind in KINDS:
        yield replace(base, group="arrivals", name=f"both {kind}", kinds=(kind,))
    yield replace(base, group="history", name="no history", history_s=0)
    yield replace(base, group="history", name="no history, uneven", history_s=0, parts=(0.75, 0.25))
    yield replace(base, group="board", name="A100-40GB", board="A100-40GB")
    a30 = replace(base, group="board", board="A30-24GB", seconds=((1, 90), (2, 50), (4, 28)))
    yield replace(a30, name="A30")
    yield replace(
        a30, name="A30, 3 tenants, 2 points", models=_models(3), pre=0.78, post=0.8, load=1.2
    )


def _models(count: int) -> tuple[str, ...]:
    return tuple(MODELS[number % len(MODELS)] for number in range(count))


@dataclass(frozen=True)
class Source:
    """Reads a setting's scenario from files that are written once per seed."""

    setting: Setting
    folder: str
    seed: int

    def __call__(self, _seed: int | None, windows: int | None) -> Scenario:
        return read_scenario(Path(self.folder) / "scenario.yaml", self.seed, windows)


def write_scenario(setting: Setting, seed: int, folder: Path) -> Source:
    """The setting as a scenario file with its traces."""
    folder.mkdir(parents=True, exist_ok=True)
    count = len(setting.models)
    parts = setting.parts or (1 / count,) * count
    board = board_named(setting.board)
    tenants: list[dict[str, object]] = []
    for number, model in enumerate(setting.models):
        service = Service(f"t{number}", profile(model, board.name), setting.slo_ms / 1e3, 1)
        mean_rps = setting.load * parts[number] * highest_rps(service, board)
        tenants.append(
            {
                "name": f"t{number}-{model}",
                "model": model,
                "slo_ms": setting.slo_ms,
                "arrivals": {
                    **_arrivals(setting, number, mean_rps, seed, folder),
                    "overload": True,
                },
                "retraining": {"windows": _drifts(setting, number, seed)},
            }
        )
    scenario = {
        "version": 1,
        "name": setting.name.replace(" ", "-").replace(",", "").replace("/", "-"),
        "gpu": setting.board,
        "window_s": setting.window_s,
        "slot_s": setting.slot_s,
        "windows": setting.windows,
        "seed": seed,
        "tenants": tenants,
    }
    (folder / "scenario.yaml").write_text(json.dumps(scenario))
    return Source(setting, str(folder), seed)


def _arrivals(
    setting: Setting, number: int, mean_rps: float, seed: int, folder: Path
) -> dict[str, object]:
    if setting.pattern is None:
        kind = setting.kinds[number % len(setting.kinds)]
        return {"generator": kind, "mean_rps": round(mean_rps, 1), "offset_s": setting.history_s}
    second = np.arange(HISTORY_S + setting.windows * setting.window_s, dtype=np.float64)
    rates: Counts = setting.pattern(number, second, setting.window_s)
    counts = np.random.default_rng([seed, number]).poisson(mean_rps * rates)
    path = folder / f"t{number}.csv"
    lines = (f"{second},{count}" for second, count in enumerate(counts.tolist()))
    path.write_text("second,count\n" + "\n".join(lines) + "\n")
    return {"trace": path.name, "offset_s": HISTORY_S}


def _drifts(setting: Setting, number: int, seed: int) -> list[dict[str, object]]:
    random = np.random.default_rng([17, seed, number])
    drifts = []
    for _ in range(setting.windows):
        pre, post = setting.pre + random.uniform(-0.03, 0.03), setting.post
        post += random.uniform(-0.02, 0.02) if post != setting.pre else 0.0
        if setting.post == setting.pre:
            post = pre
        drift: dict[str, object] = {
            "accuracy_pre": round(pre, 4),
            "accuracy_post": round(post, 4),
            "seconds": {gpcs: round(seconds, 1) for gpcs, seconds in setting.seconds},
        }
        if setting.estimate_error:
            believed = min(0.99, max(0.01, post + setting.estimate_error))
            drift["accuracy_estimated"] = round(believed, 4)
        drifts.append(drift)
    return drifts


Goodputs = dict[tuple[str, int, str], float]
"""(setting, seed, policy) -> goodput as a share of the received requests."""


def known_goodputs(path: Path | None) -> Goodputs:
    """What an interrupted run has measured."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(name, seed, policy): g for name, seed, policy, g in rows}


def goodputs(
    chosen: Sequence[Setting],
    seeds: Sequence[int],
    policies: Sequence[str],
    processes: int,
    keep: Path | None,
) -> Goodputs:
    """Run what `keep` does not have yet."""
    goodput_of = known_goodputs(keep)
    with tempfile.TemporaryDirectory() as folder:
        jobs, keys = [], []
        for place, setting in enumerate(chosen):
            for seed in seeds:
                source = write_scenario(setting, seed, Path(folder) / f"{place}-{seed}")
                for policy in policies:
                    if policy.startswith("static") and setting.board.startswith("A30"):
                        continue
                    if policy.startswith("static") and int(policy[7]) < len(setting.models):
                        continue
                    if (setting.name, seed, policy) not in goodput_of:
                        jobs.append(SimulationJob(source, policy, name=setting.name))
                        keys.append((setting.name, seed, policy))
        for place, outcome in run_all(jobs, processes):
            goodput_of[keys[place]] = outcome.tally.goodput / outcome.tally.received
            print(*keys[place], f"{goodput_of[keys[place]]:.4f}", file=sys.stderr, flush=True)
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps([*keys[place], goodput_of[keys[place]]]) + "\n")
    return goodput_of


def table(
    chosen: Sequence[Setting], seeds: Sequence[int], goodput_of: dict[tuple[str, int, str], float]
) -> list[dict[str, object]]:
    """One row per setting and seed: goodputs, and the lead over the best peer in percent."""
    rows: list[dict[str, object]] = []
    for setting in chosen:
        for seed in seeds:
            goodput = {
                p: g for (name, s, p), g in goodput_of.items() if (name, s) == (setting.name, seed)
            }
            peers = {p: g for p, g in goodput.items() if p in PEERS}
            best = max(peers, key=lambda policy: peers[policy])
            rows.append(
                {
                    "group": setting.group,
                    "setting": setting.name,
                    "seed": seed,
                    "lead": 100 * (goodput["migrator"] / peers[best] - 1),
                    "best": best,
                    "goodput": {policy: round(100 * g, 2) for policy, g in goodput.items()},
                }
            )
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table in Markdown, and the leads over all of them."""
    ours = [policy for policy in (*OURS, "oracle") if policy in rows[0]["goodput"]]
    lines = [
        "| setting | seed | " + " | ".join(ours) + " | best other | lead |",
        "|---|---|" + "---|" * (len(ours) + 2),
    ]
    for row in rows:
        goodput = row["goodput"]
        cells = " | ".join(f"{goodput[policy]:.1f}" for policy in ours)
        best = f"{row['best']} {goodput[row['best']]:.1f}"
        lines.append(
            f"| {row['setting']} | {row['seed']} | {cells} | {best} | {row['lead']:+.1f}% |"
        )
    leads = [row["lead"] for row in rows]
    below = sum(lead < -1 for lead in leads)
    lines += [
        "",
        f"Lead over the best other policy: median {statistics.median(leads):+.1f}%, from "
        f"{min(leads):+.1f}% to {max(leads):+.1f}%; below -1% in {below} of {len(leads)}.",
    ]
    return "\n".join(lines)


def page_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The lines of the page's first table: one per setting, of the first rows' commit and seed."""
    lines = []
    kept = ("commit", "seed")
    for row in rows:
        if "best" not in row or any(row.get(key) != rows[0].get(key) for key in kept):
            continue
        goodput = row["goodput"]
        shown = ("migrator", "migrator-once", "oracle")
        cells = [f"{goodput[name]:.1f}" if name in goodput else "" for name in shown]
        cells += [f"{row['best']} {goodput[row['best']]:.1f}", f"{row['lead']:+.1f}%"]
        lines.append(f"| {row['setting']} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run the settings and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="groups or settings, comma separated")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--keep", type=Path, help="file of rows: only missing ones are run")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="folder for settings.json")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    chosen = [s for s in settings() if not only or s.group in only or s.name in only]
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    policies = arguments.policies.split(",")
    goodput_of = goodputs(chosen, seeds, policies, arguments.processes, arguments.keep)
    rows = table(chosen, seeds, goodput_of)
    print(summary(rows))
    if arguments.out:
        about = {
            "command": "python -m benchmarks.settings",
            "machine": describe_machine(),
            "rows": rows,
        }
        (arguments.out / "settings.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
