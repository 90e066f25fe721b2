"""Measure the planners: `python -m benchmarks.planner [--out DIR] [--only NAME ...] [--quick]`.

Each study leaves its raw rows in DIR/NAME.json; planner.md is then made from every
study found in DIR, so a study can be measured again alone, or another day. Ctrl-C keeps
the finished ones. Exits with 1 where a plan failed or a certificate was refuted.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.measure import Row
from benchmarks.record import Record, begin_record, read_records, where, write_record
from benchmarks.render import render
from benchmarks.studies import QUICK, STUDIES, Settings
from migrator.core.problem import Charge
from migrator.planning.planners import ready


def main() -> int:
    """Run the studies asked for and write everything."""
    options = _options()
    settings = _settings(options)
    options.out.mkdir(parents=True, exist_ok=True)
    _say("loading the compiled kernels")
    for charge in Charge:
        ready(charge)
    interrupted = False
    try:
        for name in options.only or STUDIES:
            _measure(name, settings, options.quick, options.out)
    except KeyboardInterrupt:
        interrupted = True
        _say("interrupted: finished studies are kept")
    records = read_records(options.out, list(STUDIES))
    (options.out / "planner.md").write_text(render(records), encoding="utf-8")
    faults = [fault for record in records.values() for fault in record.faults]
    for fault in faults:
        _say(f"FAULT {fault}")
    _say(f"written: {options.out / 'planner.md'}")
    return 130 if interrupted else 1 if faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the planners.")
    add = parser.add_argument
    add("--out", type=Path, default=Path("out/benchmarks"), help="folder for JSON and tables")
    add("--only", nargs="+", choices=list(STUDIES), metavar="NAME", help=", ".join(STUDIES))
    add("--quick", action="store_true", help="tiny sizes: does everything run?")
    add("--highs-limit-s", type=float, help="time limit of each HiGHS run (default 300)")
    add("--highs-problems", type=int, help="problems that HiGHS solves as well (default 10)")
    add("--long-limit-s", type=float, help="time limit of each reference run (default 600)")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> Settings:
    given = {
        "highs_limit_s": options.highs_limit_s,
        "versus_highs": options.highs_problems,
        "long_limit_s": options.long_limit_s,
    }
    asked = {name: value for name, value in given.items() if value is not None}
    return replace(QUICK if options.quick else Settings(), **asked)


def _measure(name: str, settings: Settings, quick: bool, folder: Path) -> Record:
    command = shlex.join(["python", "-m", "benchmarks.planner", *sys.argv[1:]])
    record = begin_record(name, command, quick, asdict(settings))
    cases = STUDIES[name](settings)
    began = time.perf_counter()
    for number, case in enumerate(cases, 1):
        row = case.row()
        record.rows.append(row)
        write_record(record, folder, partial=True)
        _say(f"{name} {number}/{len(cases)} {_summary(row)}")
    write_record(record, folder)
    _say(f"{name}: {len(cases)} rows in {time.perf_counter() - began:.0f} s")
    return record


def _summary(row: Row) -> str:
    if "error" in row:
        return f"{where(row)}: {row['error']}"
    extra = [f"{name} {row[name]:.4g}" for name in _EXTRAS if isinstance(row.get(name), float)]
    return f"{where(row)}: {row['solve_s']:.3f} s, gap {row['gap']:.2g}, {', '.join(extra)}"


_EXTRAS = ("goodput", "shortfall", "reference_s", "highs_solve_s", "ratio", "relative", "wall_s")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
