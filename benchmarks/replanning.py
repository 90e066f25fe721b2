"""What replanning inside the window brings: python benchmarks/replanning.py [--windows N] ...

ResNet-50 and ViT-B/16 on an H200 with pairs of real traces (MIGRATOR_DATA names their folder),
in windows spread evenly over them: the window's plan, replanned and the oracle side by side.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from migrator.core.comparison import Lead
from migrator.core.errors import InputError
from migrator.reproduce.replanning import (
    LOAD,
    NAMES,
    PAIRS,
    Pair,
    WindowApart,
    generated_kinds,
    jobs_apart,
    lead_of,
    pair_name,
)
from migrator.simulate.compare import run_all
from migrator.workload.traces.generator import KINDS, VARIABLE

PROCESSES = 2


def chosen(text: str | None) -> list[Pair]:
    """The pairs asked for, as twitter+azure,batch+azure; all of the experiment's by default."""
    if text is None:
        return list(PAIRS)
    pairs = []
    for each in text.split(","):
        first, _, second = each.strip().partition("+")
        if first not in KINDS or second not in KINDS:
            kinds = ", ".join(name for name, kind in KINDS.items() if kind.file_name)
            raise InputError(f"--pairs: {each!r} is no pair; join two of {kinds} by a plus")
        pairs.append((first, second))
    return pairs


def data_for(pairs: list[Pair]) -> Path:
    """The folder of real traces; InputError where one is missing."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise InputError(
            f"{VARIABLE} names no folder of real traces; docs/traces.md says where they are"
        )
    missing = generated_kinds(pairs, Path(folder))
    if missing:
        names = ", ".join(KINDS[each].file_name or each for each in missing)
        raise InputError(
            f"{VARIABLE}: its folder lacks {names}; docs/traces.md says where they are"
        )
    return Path(folder)


def measure(pair: Pair, windows: int, data: Path, load: float, retrain: bool) -> Lead:
    """All windows of a pair under all three."""
    sources = [WindowApart(pair, n, windows, data, load, retrain) for n in range(windows)]
    runs = run_all(jobs_apart(sources), PROCESSES)
    return lead_of(pair_name(pair), (outcome for _, outcome in runs))


def row(lead: Lead) -> str:
    """A line of the table."""
    cells = [lead.scenario]
    cells += [f"{each:.2%}" for each in (lead.window_plan, lead.replanned, lead.oracle)]
    cells += ["-" if lead.change is None else f"{round(lead.change, 4) + 0.0:+.2%}"]
    cells += ["-" if lead.regained is None else f"{lead.regained:.0%}"]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Run every pair and print a row for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--load", type=float, default=LOAD, help="part of the GPU inference needs")
    parser.add_argument("--windows", type=int, default=20, help="per pair, spread over the traces")
    parser.add_argument("--pairs", metavar="KIND+KIND,...", help="default: the experiment's")
    parser.add_argument("--retrain", action="store_true", help="retrain in every window")
    options = parser.parse_args()
    if options.windows < 1 or not 0 < options.load <= 1:
        parser.error("give at least 1 for --windows, and more than 0 and at most 1 for --load")
    try:
        pairs = chosen(options.pairs)
        data = data_for(pairs)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"| traces | {' | '.join(NAMES)} | change | of the oracle's lead |")
    print("|---|---|---|---|---|---|", flush=True)
    for pair in pairs:
        lead = measure(pair, options.windows, data, options.load, options.retrain)
        print(row(lead), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
