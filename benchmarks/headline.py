"""The evaluation under docs/evaluation-protocol.md, resumable.

    MIGRATOR_DATA=FOLDER python -m benchmarks.headline --keep FILE.jsonl [--processes N]
    MIGRATOR_DATA=FOLDER python -m benchmarks.headline --ablation --keep FILE.jsonl
    MIGRATOR_DATA=FOLDER python -m benchmarks.headline --sensitivity --keep FILE.jsonl

The first runs every policy on W1 to W16 and P1 to P4 at three loads, the second adds one part of
`migrator` after the other, the third varies one condition at a time on every third workload. All
take the same FILE and share equal runs.

Every finished run is kept at once, and the same command goes on from there. Runs go seed by seed,
and in a seed one workload after the other; the page has workloads and seeds whose runs are all
finished. `--for-s` ends the call after some time. Instead of running, `--merge` adds what other
machines kept with the same code and traces, and `--rows` writes the page of what is finished.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks import headline_scenarios
from benchmarks.configurations import MEASURED, commit
from benchmarks.headline_page import Json, page
from benchmarks.headline_runs import SEEDS, Part, runs_of
from benchmarks.headline_scenarios import MASKED_WORDS, WINDOWS, Result, Run, row
from benchmarks.machine import describe_machine
from benchmarks.results_file import (
    ResultsFile,
    code_digest,
    open_results,
    traces_digest,
)
from migrator.core.errors import InputError
from migrator.io.task_pool import open_workers
from migrator.simulation import tenant
from migrator.workload.traces.generator import VARIABLE

ROOT = Path(__file__).parent.parent


def made_with(data: Path) -> dict[str, str]:
    """What kept runs depend on besides their keys."""
    own = hashlib.sha256()
    for file in (Path(headline_scenarios.__file__), MASKED_WORDS[0], MEASURED):
        own.update((ROOT / file).read_bytes())
    return {
        "code": code_digest(),
        "runs": own.hexdigest()[:16],
        "traces": traces_digest(data),
    }


def merge(file: ResultsFile[Result], other: Path) -> None:
    """Add the runs that another machine kept. InputError if they are of other code or traces."""
    with open_results(other, "headline", Result, file.settings, to_read=True) as kept:
        if kept.settings != file.settings:
            raise InputError(f"--merge: {other} has runs of other code; run them again")
        for key, result in kept.finished.items():
            if key not in file.finished:
                file.add(key, result)


def run_part(part: Part, asked: argparse.Namespace, data: Path) -> Json:
    """Run what is missing of a part; its record, with the workloads and seeds that are whole."""
    seeds = asked.seeds or SEEDS[part]
    wanted = [
        one
        for one in runs_of(part, seeds)
        if (not asked.only or one.workload in asked.only.split(","))
        and (not asked.policies or one.policy in asked.policies.split(","))
    ]
    settings = made_with(data)
    until_s = time.monotonic() + (asked.for_s or math.inf)
    with open_results(asked.keep, "headline", Result, settings, to_read=asked.rows) as file:
        for other in asked.merge:
            merge(file, other)
        left = list({one.key: one for one in wanted if one.key not in file.finished}.values())
        if left and not asked.rows and not asked.merge:
            tenant.ready()
            work = partial(Run.result, data=data)
            with open_workers(asked.processes) as workers:
                for done, (place, result) in enumerate(workers.as_completed(work, left), 1):
                    file.add(left[place].key, result)
                    print(f"\r{part}: {done} of {len(left)}", end="", file=sys.stderr)
                    if time.monotonic() > until_s:
                        break
            print(file=sys.stderr)
        torn = {(one.workload, one.seed) for one in wanted if one.key not in file.finished}
        rows = {
            one.key: row(one, file.finished[one.key], data)
            for one in wanted
            if (one.workload, one.seed) not in torn
        }
        settings = dict(file.settings)
    flag = "" if part is Part.HEADLINE else f" --{part}"
    limits = "".join(
        f" --{name} {value}"
        for name in ("only", "policies", "seeds")
        for value in [getattr(asked, name)]
        if value
    )
    return {
        "command": f"{VARIABLE}=FOLDER python -m benchmarks.headline{flag}{limits}",
        "commit": commit(),
        **settings,
        "seeds": seeds,
        "windows": WINDOWS,
        "wanted": len({one.key for one in wanted}),
        "machine": describe_machine(),
        "rows": list(rows.values()),
    }


def _text(record: Json) -> str:
    """The record as JSON, a line per row."""
    about = json.dumps({**record, "rows": []}, indent=1).removesuffix('"rows": []\n}')
    rows = ",\n  ".join(map(json.dumps, record["rows"]))
    return f'{about}"rows": [\n  {rows}\n ]\n}}\n'


def main() -> int:
    """Run a part and write its rows and its page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--ablation", action="store_true", help="add one part of migrator after the other")
    add("--sensitivity", action="store_true", help="vary one condition at a time")
    add("--keep", type=Path, default=Path("out/headline.jsonl"), help="finished runs, to continue")
    add("--processes", type=int, help="runs in parallel; default: one per core")
    add("--only", default="", metavar="W1,P1,...", help="workloads; default: all")
    add("--policies", default="", metavar="NAME,...", help="default: all")
    add("--seeds", type=int, help="number of seeds; default: that of the protocol")
    add("--for-s", type=float, metavar="SECONDS", help="end the call after the first run from then")
    add("--out", type=Path, default=Path("docs/results"))
    instead = parser.add_mutually_exclusive_group()  # of running
    add = instead.add_argument
    add("--rows", action="store_true", help="write rows and page of what is finished")
    add("--merge", type=Path, nargs="+", default=[], metavar="FILE", help="add runs to --keep")
    asked = parser.parse_args()
    folder = os.environ.get(VARIABLE)
    if not folder:
        print(f"error: {VARIABLE} names no folder of real traces", file=sys.stderr)
        return 2
    part = Part.HEADLINE
    if asked.ablation or asked.sensitivity:
        part = Part.ABLATION if asked.ablation else Part.SENSITIVITY
    asked.keep.parent.mkdir(parents=True, exist_ok=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        record = run_part(part, asked, Path(folder))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    (asked.out / f"{part}.json").write_text(_text(record), encoding="utf-8")
    (asked.out / f"{part}.md").write_text(page(part, record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
