"""Other settings of the live comparison, simulated with what a live run measured.

    PYTHONPATH=src python -m benchmarks.gpu.live_settings FOLDER [--seeds 5] [--only "NAME;NAME"]

FOLDER is that of `live.py`, with runs of `migrator` and `ekya` of any scenario. From them come the
profile, accuracies, estimates, durations of every step and of retrainings with their parts; from
the setting come arrivals, windows and epochs. More epochs take longer and learn no more. Later
windows than the measured ones have the accuracies of the scenario, and retrainings that grow as
from the first measured window to the last.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.gpu.live import ASKED, PROFILES, adapt, asked_for, set_rates
from benchmarks.gpu.live_results import OURS, Finished, finished_runs
from benchmarks.live_daemon import write_scenario
from benchmarks.measured_run import measured_run
from benchmarks.replayed import MeasuredDurations, MeasuredModel, MeasuredWindow, Training
from migrator.control.tenant_state import TrainingSettings
from migrator.forecast.selection import forecaster
from migrator.io.task_pool import open_workers
from migrator.io.yaml_text import load_yaml
from migrator.policies.policy import Policy, Sharing, lends
from migrator.policies.registry import policy
from migrator.simulation.run import MeasuredRun, run
from migrator.workload.live import LiveScenario, LiveTenant, read_live

PEERS = ("ekya", "astraea", "paris-reconfiguring", "equal-mig", "oracle")
"""The last one knows the arrivals: a bound."""
BURSTY = "azure-bursty"
_ESTIMATED_HIGHER = 0.03
"""By which the accuracy after retraining was overestimated in the last measured window."""


@dataclass(frozen=True)
class Setting:
    """One way to run the comparison; by default as `live.py --driver mps` runs the scenario."""

    epochs: int | None = None
    window_s: int | None = None
    windows: int | None = None
    bursty: str = BURSTY
    """The generator of the tenants with bursty arrivals."""
    history_s: int | None = None
    forecaster: str | None = None
    board: str | None = None
    isolated: bool = False
    """Instances do not slow each other down, as on MIG; shares do."""
    hand_over_s: float | None = None
    """From the end of a retraining until all workers serve its model; None: as measured."""
    interference: float | None = None
    """Of both models; None: as in the profile."""
    lending: bool | None = None
    """Whether policies on instances lend idle slices; None: those that do so."""

    def document(self, scenario: Path) -> dict[str, Any]:
        """The scenario, without rates and seed."""
        found: Any = load_yaml(scenario.read_text(encoding="utf-8"))
        options = ("epochs", "window_s", "windows", "history_s", "forecaster", "board")
        words = ["--out", "."]
        for name in options:
            if getattr(self, name) is not None:
                words += [f"--{name.replace('_', '-')}", str(getattr(self, name))]
        adapt(found, asked_for(words))
        document: dict[str, Any] = found
        for tenant in document["tenants"]:
            if tenant["arrivals"].get("generator") == BURSTY:
                tenant["arrivals"]["generator"] = self.bursty
        return document


SETTINGS = {
    "as measured": Setting(),
    "no lending": Setting(lending=False),
    "all lend": Setting(lending=True),
    "no lending, interference 0.13": Setting(lending=False, interference=0.13),
    "interference 0.13": Setting(interference=0.13),
    "interference 0.13, isolated": Setting(interference=0.13, isolated=True),
    "isolated": Setting(isolated=True),
    "MIG": Setting(board="H200-141GB", isolated=True),
    "new models at once": Setting(hand_over_s=0.2),
    "4 epochs": Setting(epochs=4),
    "6 epochs": Setting(epochs=6),
    "last-mean": Setting(forecaster="last-mean"),
    "600 s of history": Setting(history_s=600),
    "3 windows": Setting(windows=3),
    "13 epochs, 100 s": Setting(epochs=13, window_s=100),
    "batch": Setting(bursty="batch"),
    "twitter": Setting(bursty="twitter"),
    "azure": Setting(bursty="azure"),
}


def scenario_of(setting: Setting, seed: int, scenario: Path, profiles: Path) -> LiveScenario:
    """The setting of a scenario with the arrivals of a seed."""
    document = setting.document(scenario)
    set_rates(document, profiles)
    for tenant in document["tenants"]:
        tenant["profile"] = str(profiles)
        tenant["arrivals"]["overload"] = True
    with tempfile.TemporaryDirectory() as folder:
        live = read_live(write_scenario(Path(folder, "live.yaml"), {**document, "seed": seed}))
    return live if setting.interference is None else _interfering(live, setting.interference)


def _interfering(live: LiveScenario, interference: float) -> LiveScenario:
    tenants = []
    for tenant in live.scenario.tenants:
        profile = replace(tenant.service.profile, interference=interference)
        tenants.append(replace(tenant, service=replace(tenant.service, profile=profile)))
    return replace(live, scenario=replace(live.scenario, tenants=tuple(tenants)))


@cache
def _runs(folder: Path) -> Mapping[str, Finished]:
    return {finished.policy: finished for finished in finished_runs(folder)}


@cache
def _measured(folder: Path) -> MeasuredRun:
    """What the run of `migrator` measured, completed by the others without a fault."""
    ours, others = _runs(folder)[OURS], ("ekya", "equal-mig", "paris-reconfiguring")
    more = [_runs(folder)[other].measured for other in others if other in _runs(folder)]
    return measured_run(ours.live, policy(OURS), ours.measured, more)


def measured_for(folder: Path, live: LiveScenario, chosen: Policy, setting: Setting) -> MeasuredRun:
    """The measurements for another setting: steps of the policy's own run or a similar one."""
    similar = "ekya" if chosen.sharing is Sharing.MPS else OURS
    mine = _runs(folder).get(chosen.name, _runs(folder)[similar])
    own = measured_run(mine.live, chosen, mine.measured, [_runs(folder)["ekya"].measured])
    pooled = _measured(folder)
    assert isinstance(own.durations, MeasuredDurations)
    assert isinstance(pooled.durations, MeasuredDurations)
    windows = range(live.scenario.windows)
    trainings = {
        (tenant.name, at): _training(folder, tenant, at)
        for tenant in live.tenants
        for at in windows
    }
    alone = {key: [training] for key, training in trainings.items()}
    swaps = {
        (tenant.name, at): pooled.durations.swaps.get(
            (tenant.name, min(at, _last_window(folder))), 0.5
        )
        if setting.hand_over_s is None
        else setting.hand_over_s
        for tenant in live.tenants
        for at in windows
    }
    seen = {
        tenant.service.tenant: tenant.trace.counts[
            tenant.offset_s : tenant.offset_s
            + round(live.scenario.windows * live.scenario.window_s)
        ].astype(float)
        for tenant in live.scenario.tenants
    }
    shared = Sharing.MPS if chosen.sharing is Sharing.MIG else None
    return replace(
        own,
        durations=replace(own.durations, trainings=alone, swaps=swaps, removals={}),
        models={tenant.name: _model(folder, live, tenant, trainings) for tenant in live.tenants},
        tenants={tenant.name: TrainingSettings.of(tenant) for tenant in live.tenants},
        seen=seen,
        sharing=shared,
        lends=lends(chosen, live.scenario.board) if setting.lending is None else setting.lending,
    )


def _training(folder: Path, tenant: LiveTenant, window: int) -> Training:
    """The measured retraining with another number of epochs."""
    durations = _measured(folder).durations
    assert isinstance(durations, MeasuredDurations)
    measured = _last_window(folder)
    first, last = (durations.trainings[tenant.name, number][0] for number in (0, measured))
    curve = tenant.training_s(1)
    grown_s = last.seconds - first.seconds * curve.at(last.sms) / curve.at(first.sms)
    at = min(window, measured)
    grown_s *= (window - at) / max(1, measured)
    training = durations.trainings[tenant.name, at][0]
    more = tenant.epochs / _measured_epochs(folder, tenant.name) - 1
    seconds = training.seconds + grown_s + more * (_epochs_s(folder, tenant.name, at) + grown_s)
    return Training(seconds, training.sms)


def _last_window(folder: Path) -> int:
    """Of the run whose records are used, counted from 0."""
    return _runs(folder)[OURS].live.scenario.windows - 1


def _measured_epochs(folder: Path, tenant: str) -> int:
    """Of the run whose records are used."""
    return _runs(folder)[OURS].live.tenant(tenant).epochs


def _epochs_s(folder: Path, tenant: str, window: int) -> float:
    """Seconds of the measured retraining that grow with its epochs; of the nearest window whose
    retraining was measured."""
    records = _runs(folder)[OURS].measured.records
    number = records.windows[window].window
    known = [
        (abs(retraining.window - number), retraining.parts_s["epochs_s"])
        for retraining in records.retrainings
        if retraining.tenant == tenant and "epochs_s" in retraining.parts_s
    ]
    if not known:
        raise SystemExit(f"{folder}: {OURS} did not retrain {tenant}; give a folder where it did")
    return min(known)[1]


def _model(
    folder: Path,
    live: LiveScenario,
    tenant: LiveTenant,
    trainings: Mapping[tuple[str, int], Training],
) -> MeasuredModel:
    known = _measured(folder).models[tenant.name]
    assert isinstance(known, MeasuredModel)
    drifts = next(
        live_tenant.drifts
        for live_tenant in live.scenario.tenants
        if live_tenant.service.tenant == tenant.name
    )
    labelled = known.windows[0].labelled
    windows, measured = [], _last_window(folder)
    for window in range(live.scenario.windows):
        before = labelled if window else known.labelled_before
        samples = max(1, round(before * (1 - tenant.held_out)))
        took = trainings[tenant.name, window]
        slower = max(1.0, took.seconds / tenant.training_s(samples).at(took.sms))
        as_measured = known.windows[min(window, measured)]
        if window == 0 and as_measured.slower is not None:
            # planned with the profile and the pre-training only, as the measured run was
            usual = _as_measured(folder, tenant).training_s(samples).at(took.sms)
            slower *= as_measured.slower * usual / _taken_s(folder, tenant)
        if window > measured:
            drift = drifts[min(window, len(drifts) - 1)]
            as_measured = _assumed(window, drift.accuracy_pre, drift.accuracy_post)
        windows.append(replace(as_measured, labelled=labelled, slower=slower))
    return MeasuredModel(tuple(windows), known.labelled_before)


def _taken_s(folder: Path, tenant: LiveTenant) -> float:
    """Of the measured retraining in the first window."""
    return _training(folder, _as_measured(folder, tenant), 0).seconds


def _as_measured(folder: Path, tenant: LiveTenant) -> LiveTenant:
    """The tenant with the epochs of the measured run."""
    return replace(tenant, epochs=_measured_epochs(folder, tenant.name))


def _assumed(window: int, pre: float, post: float) -> MeasuredWindow:
    accuracy = {window - 2: 0.8 * pre, window - 1: pre, window: post}
    return MeasuredWindow(accuracy, pre, post + _ESTIMATED_HIGHER, 0, True, post)


def goodput(job: tuple[Path, Setting, int, str]) -> float:
    """Goodput over received of one policy."""
    folder, setting, seed, name = job
    files = folder.absolute() / "scenario"
    live = scenario_of(setting, seed, files / ASKED, files / PROFILES)
    chosen = policy(name)
    if setting.isolated and chosen.sharing is Sharing.MIG:
        live = _interfering(live, 0.0)
    measured = measured_for(folder, live, chosen, setting)
    ahead = forecaster(live.scenario.forecaster)
    return run(live.scenario, chosen, ahead, even_start=True, measured=measured).tally.goodput_share


def rows(folder: Path, names: Sequence[str], seeds: int, processes: int) -> Iterator[str]:
    """A table: goodput of ours, and leads over every peer with their standard deviation."""
    yield f"| setting | `{OURS}` | {' | '.join(f'over `{peer}`' for peer in PEERS)} |"
    yield "|" + "---|" * (2 + len(PEERS))
    with open_workers(processes) as workers:
        for name in names:
            keys = list(product((OURS, *PEERS), range(seeds)))
            jobs = [(folder, SETTINGS[name], seed, key) for key, seed in keys]
            found = dict(zip(keys, workers.map(goodput, jobs), strict=True))
            cells = [name, f"{statistics.mean(found[OURS, s] for s in range(seeds)):.1%}"]
            for peer in PEERS:
                leads = [100 * (found[OURS, s] / found[peer, s] - 1) for s in range(seeds)]
                spread = statistics.stdev(leads) if seeds > 1 else 0.0
                cells.append(f"{statistics.mean(leads):+.1f} ± {spread:.1f}%")
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", help="names of settings, separated by semicolons; default all")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    names = asked.only.split(";") if asked.only else list(SETTINGS)
    for line in rows(asked.folder, names, asked.seeds, asked.processes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
