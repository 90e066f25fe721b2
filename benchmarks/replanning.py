"""What replanning inside the window brings: python benchmarks/replanning.py [--load X] [--retrain].

ResNet-50 and ViT-B/16 on an H200 with two real traces (MIGRATOR_DATA names their folder), under
migrator, migrator-replanned and the oracle: goodput, and the part of the oracle's lead regained.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from migrator.core import catalogue
from migrator.core.profiles import profile
from migrator.core.scenario import Scenario, ServedTenant
from migrator.core.service import Service
from migrator.forecast.registry import forecaster
from migrator.policies.registry import policy
from migrator.scenario.drifts import drifts
from migrator.scenario.load import highest_rps
from migrator.simulate.compare import prepare
from migrator.simulate.run import run
from migrator.traces.formats import load_trace
from migrator.traces.kinds import KINDS
from migrator.traces.real import VARIABLE, real_file

BOARD = catalogue.board("H200-141GB")
MODELS = ("resnet-50", "vit-b-16")
PAIRS = (
    ("twitter", "alibaba-steady"),
    ("alibaba", "azure"),
    ("twitter", "azure-bursty"),
    ("batch", "azure"),
)
POLICIES = ("migrator", "migrator-replanned", "oracle")
HISTORY_S, WINDOW_S = 600, 200


def scenario(pair: tuple[str, str], load: float, windows: int, retrain: bool) -> Scenario:
    """Each tenant at half the load, by its trace's mean in the run."""
    tenants = []
    for model, kind in zip(MODELS, pair, strict=True):
        known = profile(model, BOARD.name)
        service = Service(model, known, 0.1, 1)
        trace = load_trace(real_file(kind) or Path(KINDS[kind].file_name or kind))
        come = trace.counts[HISTORY_S : HISTORY_S + windows * WINDOW_S].mean()
        scaled = trace.scaled(load / 2 * highest_rps(service, BOARD) / float(come))
        drift = drifts("nc-cifar-10", known) if retrain else ()
        tenants.append(ServedTenant(service, scaled, HISTORY_S, drift))
    name = " + ".join(pair)
    shape = (BOARD, float(WINDOW_S), 1.0, windows, tuple(tenants))
    return Scenario(name, *shape, "migrator", "last-mean", 0, prepared=True)


def main() -> int:
    """Run every pair and print a row for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--load", type=float, default=0.8, help="part of the GPU inference needs")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--retrain", action="store_true", help="retrain in every window")
    options = parser.parse_args()
    if not os.environ.get(VARIABLE):
        print(f"{VARIABLE} names no folder of real traces; docs/traces.md says where they are")
        return 2
    print(f"| traces | {' | '.join(POLICIES)} | change | of the oracle's lead |")
    print("|---|---|---|---|---|---|")
    for pair in PAIRS:
        this = scenario(pair, options.load, options.windows, options.retrain)
        found = []
        for name in POLICIES:
            prepare(policy(name))
            outcome = run(replace(this, policy=name), policy(name), forecaster("last-mean"))
            found.append(outcome.tally.goodput_share)
        once, again, best = found
        shares = " | ".join(f"{each:.2%}" for each in found)
        lead = f"{(again - once) / (best - once):.0%}" if best > once else "-"
        print(f"| {this.name} | {shares} | {again / once - 1:+.2%} | {lead} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
