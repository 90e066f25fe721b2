"""Policies served live on one GPU, with the same requests, and simulation beside them.

    PYTHONPATH=src MIGRATOR_DATA=... python -m benchmarks.gpu.live --out FOLDER --driver mps
    PYTHONPATH=src python -m benchmarks.gpu.live --out FOLDER --driver emulated --quick
    PYTHONPATH=src ... python -m benchmarks.gpu.live --out FOLDER --scenario FILE

FILE is a scenario file of any tenants; `live.yaml` beside this one is the default. Its `arrivals`
may have `load` in place of `mean_rps` and `scale`: the tenant's rate over what its even part of the
board answers (`set_rates`).

Measures the models' profile, pre-trains all models once, and serves the same requests under every
policy and seed. Then writes `live.json` and `live.html`: goodput per policy and tenant, measured
and simulated, planned against held slices and taken durations, and what requests were lost to.

Every finished run is a folder with a `run.json`. The same command continues where it was stopped;
a run that broke off is repeated. `--budget` begins no run that would end later. `--page` only
writes the results, on a machine without a GPU too. docs/results/live.md describes the setting.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.live_cells import configurations
from benchmarks.live_daemon import MIGRATOR, environment, served, write_scenario
from benchmarks.trace_statistics import statistics_of
from migrator.core.catalogue import board
from migrator.io.atomic_write import write_atomically
from migrator.io.yaml_text import load_yaml
from migrator.workload.profile_file import read_profile
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import generate

HERE = Path(__file__).parent
POLICIES = ("migrator", "ekya", "astraea", "paris-reconfiguring", "equal-mig", "migrator-paper")
LAST = ("migrator-paper",)
"""They run when all others have run with every seed."""
BOARDS = {"mps": "H200-141GB-MPS"}
"""Default boards: all policies divide the GPU as the driver can. MPS has more than MIG's sizes."""
SCENARIO = HERE / "live.yaml"
PROFILES = "live.profiles.json"
ASKED = "asked.yaml"
"""The scenario before rates were set, beside the files that were run."""
WINDOWS, EPOCHS = 4, 8
"""Of a scenario that does not say how many."""
HISTORY_S = 2400
"""Of a trace before the run, where the scenario does not say how much: 40 windows, which `auto`
needs to choose a forecaster."""
MARKER = "run.json"
LEAD_S = 10.0
"""From the upload of the first samples to the first request; the daemon estimates meanwhile."""
START_S = 45.0
"""Seconds of a run beside its windows, before any was measured."""


@dataclass(frozen=True)
class Run:
    """One policy with one seed."""

    seed: int
    policy: str
    several: bool = False
    """Whether tenants have several ways to retrain."""

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.policy}-configurations" if self.several else self.policy

    @property
    def folder(self) -> Path:
        """Below the folder of all results."""
        return Path("runs", f"seed{self.seed}", self.name)


def schedule(policies: Sequence[str], seeds: int, *, twice: bool = False) -> list[Run]:
    """Every policy with every seed; the order of the policies changes from seed to seed.

    `twice`: each with one way to retrain, then with several.
    """
    groups = (
        [policy for policy in policies if policy not in LAST],
        [policy for policy in policies if policy in LAST],
    )
    runs: list[Run] = []
    for group in groups:
        for seed in range(seeds):
            runs += [
                Run(seed, policy, several)
                for policy in random.Random(seed).sample(group, len(group))
                for several in ((False, True) if twice else (False,))
            ]
    return runs


def is_done(folder: Path, run: Run) -> bool:
    """Whether the run has ended as it should."""
    return (folder / run.folder / MARKER).is_file()


def left_to_do(folder: Path, runs: Iterable[Run]) -> list[Run]:
    """The runs without a marker. What is left of them is removed."""
    left = [run for run in runs if not is_done(folder, run)]
    for run in left:
        shutil.rmtree(folder / run.folder, ignore_errors=True)
    return left


@dataclass
class Budget:
    """How many seconds are left, and what a run takes."""

    seconds: float | None
    """None: no limit."""
    run_s: float
    began_s: float

    def allows_run(self, now_s: float) -> bool:
        """Whether a run that begins now ends in time."""
        return self.seconds is None or now_s - self.began_s + self.run_s <= self.seconds

    def took(self, seconds: float) -> None:
        """Count with the longest run so far."""
        self.run_s = max(self.run_s, seconds)


def main() -> None:
    """Everything into one folder; what is there already is not done again."""
    asked = asked_for(sys.argv[1:])
    asked.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _end)
    if not asked.page:
        _measure(asked, time.monotonic())
    if not asked.no_page:
        from benchmarks.gpu.live_results import write_results  # it needs plotly

        print("\n".join(write_results(asked.out)))


def asked_for(words: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenario", type=Path, default=SCENARIO, help="default live.yaml")
    parser.add_argument("--driver", default="mps", choices=("mps", "mig", "emulated"))
    parser.add_argument(
        "--board",
        help="as `migrator boards` names it; default H200-141GB-MPS for MPS, else the scenario's",
    )
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--windows", type=int, help="default the scenario's")
    parser.add_argument("--window-s", type=int, help="default the scenario's")
    parser.add_argument("--epochs", type=int, help="of a retraining; default the scenario's")
    parser.add_argument(
        "--configurations",
        action="store_true",
        help="run every policy again with several ways to retrain (live_configurations.py)",
    )
    parser.add_argument("--history-s", type=int, help="arrivals before the run")
    parser.add_argument("--forecaster", help="default the scenario's")
    parser.add_argument("--labelled", default="0.5", help="part of the training samples sent")
    parser.add_argument("--profile", type=Path, help="a profile file instead of measuring one")
    parser.add_argument("--profile-s", type=float, default=120.0, help="limit for measuring it")
    parser.add_argument("--budget", type=float, help="seconds in which the last run must end")
    parser.add_argument("--quick", action="store_true", help="small models, short windows")
    parser.add_argument("--page", action="store_true", help="only write the results")
    parser.add_argument("--no-page", action="store_true", help="only measure")
    asked = parser.parse_args(words)
    if asked.quick:
        asked.window_s, asked.windows = 20, asked.windows or 2
        asked.seeds = min(asked.seeds, 1)
        if asked.policies == ",".join(POLICIES):
            asked.policies = "migrator,equal-mig"
    return asked


def _end(_number: int, _frame: FrameType | None) -> None:
    """End the daemon of the present run; it is repeated next time."""
    raise SystemExit(143)


def _measure(asked: argparse.Namespace, began_s: float) -> None:
    folder: Path = asked.out
    document = _document(asked)
    asked.windows, asked.window_s = document["windows"], document["window_s"]
    scenario = _scenario(document, asked)
    begun, policies = folder / "begun", asked.policies.split(",")
    with _compiling(scenario(0), policies):
        if not begun.exists():
            _timed("pre-training and start", lambda: _pretrain(scenario(0), begun, asked))
    budget = Budget(asked.budget, asked.windows * asked.window_s + START_S, began_s)
    left = left_to_do(folder, schedule(policies, asked.seeds, twice=asked.configurations))
    for at, run in enumerate(left):
        if not budget.allows_run(time.monotonic()):
            names = ", ".join(f"{run.name} with seed {run.seed}" for run in left[at:])
            print(f"left for another time: {names}", flush=True)
            return
        run_began_s = time.monotonic()
        try:
            _run(scenario(run.seed, several=run.several), run, begun, asked)
        except (subprocess.SubprocessError, OSError, SystemExit) as error:
            if isinstance(error, SystemExit) and error.code == 143:
                raise
            print(f"{run.name}, seed {run.seed}: broke off: {error}", flush=True)
        budget.took(time.monotonic() - run_began_s)


def _document(asked: argparse.Namespace) -> dict[str, Any]:
    """The scenario that was asked for, with loads in place of rates."""
    document = _read(asked.scenario)
    for tenant in document["tenants"]:
        if "trace" in tenant["arrivals"]:
            trace = asked.scenario.parent / tenant["arrivals"]["trace"]
            tenant["arrivals"]["trace"] = str(trace.absolute())
    if asked.quick or asked.driver == "emulated":
        _make_small(document)
    adapt(document, asked)
    return document


def _scenario(document: dict[str, Any], asked: argparse.Namespace) -> Any:
    """A function from the seed to the scenario's file, beside its profiles."""
    folder: Path = asked.out / "scenario"
    folder.mkdir(exist_ok=True)
    write_scenario(folder / ASKED, document)
    profiles = folder / PROFILES
    if not profiles.exists():
        if asked.profile is None:
            _timed("profiles", lambda: _profile(document, profiles, asked))
        else:
            shutil.copy(asked.profile, profiles)
    set_rates(document, profiles)

    def written(seed: int, *, several: bool = False) -> Path:
        beside = folder / (f"seed{seed}-configurations" if several else f"seed{seed}")
        beside.mkdir(exist_ok=True)
        shutil.copy(profiles, beside)
        run = with_configurations(document) if several else document
        return write_scenario(beside / "live.yaml", {**run, "seed": seed})

    return written


def with_configurations(document: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario whose tenants have several ways to retrain."""
    tenants = []
    for tenant in document["tenants"]:
        ways = configurations(tenant.get("live", {}).get("epochs", EPOCHS))
        retraining = {**(tenant.get("retraining") or {}), "configurations": ways}
        tenants.append({**tenant, "retraining": retraining})
    return {**document, "tenants": tenants}


def adapt(document: dict[str, Any], asked: argparse.Namespace) -> None:
    """Put what was asked for into the scenario, whose profiles will be beside it."""
    document["window_s"] = asked.window_s or document.get("window_s", 200)
    document["windows"] = asked.windows or document.get("windows", WINDOWS)
    document["gpu"] = asked.board or BOARDS.get(asked.driver, document.get("gpu", "H200-141GB"))
    sizes = board(document["gpu"]).sizes
    if asked.forecaster is not None:
        document["forecaster"] = asked.forecaster
    for tenant in document["tenants"]:
        tenant["profile"] = PROFILES
        if asked.history_s is not None:
            tenant["arrivals"]["offset_s"] = asked.history_s
        if asked.epochs is not None:
            tenant.setdefault("live", {})["epochs"] = asked.epochs
        for window in (tenant.get("retraining") or {}).get("windows", ()):
            seconds = window["seconds"]
            window["seconds"] = {size: seconds[size] for size in seconds if int(size) in sizes}


def set_rates(document: dict[str, Any], profiles: Path) -> None:
    """Replace `load` of arrivals by the rate: the load of what a tenant's even part of the board
    answers, in full batches on its smallest instances.

    Seconds without requests do not count: a trace that is silent for most of the time would
    otherwise ask for several times the board in all others.
    """
    gpu_board = board(document["gpu"])
    size = gpu_board.sizes[0]
    instances = gpu_board.compute_slices / size / len(document["tenants"])
    for tenant in document["tenants"]:
        arrivals = tenant["arrivals"]
        load = arrivals.pop("load", None)
        if load is None:
            continue
        profile = read_profile(profiles, tenant["model"])
        batch = tenant.get("batch", 1)
        able_rps = instances * batch / profile.latency_s(batch, gpu_board.sms_of(size))
        if "trace" in arrivals:
            counts = load_trace(Path(arrivals["trace"])).counts
            begin_s = arrivals.setdefault("offset_s", HISTORY_S)
            end_s = begin_s + document["windows"] * document["window_s"]
            if len(counts) < end_s or not counts[begin_s:end_s].any():
                raise SystemExit(
                    f"{arrivals['trace']}: no request from second {begin_s} to {end_s}, in which "
                    "the run is; begin elsewhere with offset_s or give a longer trace"
                )
            mean_rps = float(counts[begin_s:end_s].mean())
            arrivals["scale"] = round(load * _busy(counts) * able_rps / mean_rps, 4)
        else:
            drawn = generate(arrivals["generator"], mean_rps=able_rps, seconds=3600, seed=0)
            arrivals["mean_rps"] = round(load * _busy(drawn.counts) * able_rps, 1)


def _busy(counts: NDArray[np.int64]) -> float:
    """The part of the seconds with requests."""
    return 1 - statistics_of(counts).empty_share


def _make_small(document: dict[str, Any]) -> None:
    """For a machine without a GPU: other models, pictures made from the seed, slow answers."""
    for tenant in document["tenants"]:
        tenant["model"] = "benchmarks.gpu.live_models:ManyViewsSmall"
        tenant["slo_ms"] = 4000
        live = tenant.get("live", {})
        small = {"benchmark": "nc-synthetic", "pixels": 16, "input_pixels": 16, "replay": 25}
        epochs = max(1, round(live.get("epochs", 8) * SMALL_EPOCHS))
        tenant["live"] = {**live, **small, "epochs": epochs}


SMALL_EPOCHS = 0.25
"""Of the scenario's, without a GPU."""
SMALL = {
    "model": "benchmarks.gpu.live_models:ManyViewsSmall",
    "board": "H200-141GB",
    "latency_ms": {
        "1": {"16": 400, "32": 240, "64": 160, "132": 120},
        "4": {"16": 1200, "32": 700, "64": 420, "132": 300},
    },
    "training_ratio": 0.05,
    "interference": 0.0,
    "contention": 0.5,
    "overhead": {"create_s": 0.3, "start_s": 3.0, "load_s": 0.3},
    "provenance": "chosen so that this machine, not a GPU, can answer in time",
}


def _profile(document: Mapping[str, Any], out: Path, asked: argparse.Namespace) -> None:
    if asked.driver == "emulated":
        about = {"version": 2, "measured": {}, "profiles": [SMALL]}
        out.write_text(json.dumps(about, indent=1), encoding="utf-8")
        return
    # a profile is of SMs, whatever divides them
    document = {**document, "gpu": document["gpu"].removesuffix("-MPS")}
    bare = [{k: v for k, v in tenant.items() if k != "profile"} for tenant in document["tenants"]]
    path = write_scenario(out.with_name("profiled.yaml"), {**document, "tenants": bare})
    words = ["profile", str(path), "--driver", asked.driver, "--batches", "1,4", "--pace", "0.4"]
    words += ["--budget-s", f"{asked.profile_s:g}", "--out", str(out)]
    subprocess.run([*MIGRATOR, *words], check=True, env=environment())


@contextmanager
def _compiling(scenario: Path, policies: Iterable[str]) -> Iterator[None]:
    """Compile the planners, which takes up to a minute once per machine, meanwhile."""
    command = [*MIGRATOR, "simulate", str(scenario), "--windows", "1", "--policy"]
    running = [
        subprocess.Popen([*command, name], stdout=subprocess.DEVNULL, env=environment())
        for name in ("migrator", "migrator-paper")
        if name in policies
    ]
    try:
        yield
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.terminate()


def _pretrain(scenario: Path, state: Path, asked: argparse.Namespace) -> None:
    """The first versions, so that every policy begins with the same ones."""
    unfinished = state.with_name("begun.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with served(scenario, unfinished, "--driver", asked.driver, "--policy", "equal-mig"):
        pass
    # windows of this daemon are not those of a run, and its checkpoints are large
    for path in unfinished.glob("live/*/records.db*"):
        path.unlink()
    for path in unfinished.glob("live/*/trainings"):
        shutil.rmtree(path)
    unfinished.rename(state)


def _run(scenario: Path, run: Run, begun: Path, asked: argparse.Namespace) -> None:
    folder: Path = asked.out / run.folder
    state = folder / "state"
    shutil.copytree(begun, state)
    options = ("--driver", asked.driver, "--policy", run.policy, "--windows", str(asked.windows))
    kept = ("--batches", str(folder / "batches.csv"))
    began_s = time.monotonic()
    with served(scenario, state, *options, *kept) as daemon:
        start_s = time.monotonic() - began_s
        load = ["load", str(scenario), "--url", daemon.url, "--now", "--json"]
        load += ["--windows", str(asked.windows), "--labels-at", "start"]
        load += ["--labelled", asked.labelled, "--first-lead-s", f"{LEAD_S:g}"]
        with (folder / "load.json").open("wb") as output:
            subprocess.run([*MIGRATOR, *load], stdout=output, check=True, env=environment())
        daemon.wait()
        records = list(daemon.folder.glob("records.db*"))
        for path in records:
            shutil.copy(path, folder)
    shutil.copy(state / "serve.log", folder)
    shutil.rmtree(state)
    sent = json.loads((folder / "load.json").read_text(encoding="utf-8"))
    why = broken(sent, asked.windows) or ("" if records else f"no records in {daemon.folder}")
    if why:
        raise SystemExit(why)
    about = {
        "policy": run.policy,
        "seed": run.seed,
        "configurations": run.several,
        "driver": asked.driver,
        "windows": asked.windows,
        "start_s": round(start_s, 1),
        "seconds": round(time.monotonic() - began_s, 1),
        "ended_at": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    with write_atomically(folder / MARKER) as unfinished:
        unfinished.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    goodput = f"{sent['goodput']:,} of {sent['sent']:,}"
    print(
        f"{run.name}, seed {run.seed}: {about['seconds']} s, goodput {goodput}, "
        f"refused {sum(sent['refused'].values())}, failed {sum(sent['failed'].values())}",
        flush=True,
    )


def broken(sent: Mapping[str, Any], windows: int) -> str:
    """Why a run does not count; empty if it does."""
    if sent.get("ended"):
        return f"the clients ended early: {sent['ended']}"
    if len(sent["windows"]) < windows:
        return f"{len(sent['windows'])} of {windows} windows were sent"
    return ""


def _read(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", load_yaml(path.read_text(encoding="utf-8")))


def _timed(what: str, doing: Any) -> None:
    began = time.monotonic()
    doing()
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
