"""The profiler without the rest of MIGRator: `python -m migrator.profiling MODEL ...`.

For GPU hosts that have little besides torch. Elsewhere, `migrator profile SCENARIO` does the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from migrator.core import catalogue
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.profiling.drivers import DRIVERS, Json, driver
from migrator.profiling.measurements import Measurement, listed, measurements, on_instances
from migrator.profiling.results import Results, beside
from migrator.profiling.run import profile


def print_measurement(measurement: Measurement, row: Json) -> None:
    """Print one line per measurement."""
    if "jobs" not in row:
        print(row.get("fault") or row["lost"], flush=True)
        return
    first = row["jobs"][0]
    if "held_mib" in first:
        took, eager = f"{first['held_mib']:.0f} MiB", ""
    else:
        took = f"{first['p50_ms']:.3f} ms" if "p50_ms" in first else f"{first['first_s']:.2f} s"
        eager = "" if first.get("graph") else " (eager)"
    print(f"{measurement.study:<13}{measurement.description}: {took}{eager}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write profiles, or list the measurements."""
    return run(lambda: _main(_options(arguments)))


def run(command: Callable[[], int]) -> int:
    """The exit code of a command, also of one that fails; its error is printed."""
    try:
        return command()
    except MigratorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 3 if isinstance(error, GpuError) else 1
    except KeyboardInterrupt:
        print("error: interrupted; the same command goes on from there", file=sys.stderr)
        return 130


def _main(options: argparse.Namespace) -> int:
    board = catalogue.board(options.board) if options.board else None
    if options.dry_run:
        todo = _todo(options, board or driver(options.driver, options.gpu, None).board)
        print(listed(todo))
        return 0
    opened = driver(options.driver, options.gpu, board)
    todo = _todo(options, opened.board)
    head = {"driver": opened.name, "board": opened.board.name, **opened.about}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    results = Results(beside(options.out), head, fresh=options.fresh)
    budget_s, report = options.budget_s, print_measurement
    done = profile(todo, opened, results, options.out, budget_s=budget_s, report=report)
    print(f"{options.out}: {len(done.profiles)} profiles; measured {done.measured}, ", end="")
    print(f"taken over {done.taken_over}, left {done.left}, faults {len(done.faults)}")
    return 0


def _todo(options: argparse.Namespace, board: catalogue.Board) -> list[Measurement]:
    todo = measurements(
        board,
        options.models,
        options.batches,
        interference=options.interference,
        rounds=options.rounds,
        pace=options.pace,
    )
    return todo if DRIVERS[options.driver].coexist else on_instances(todo)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_options("python -m migrator.profiling", "Profile models on one GPU.")
    parser.set_defaults(driver="mps", out=Path("profiles.json"), budget_s=float("inf"))
    add = parser.add_argument
    add("--batches", type=_counts, default=(1, 4, 16), help="such as 1,4,16")
    add("--interference", action="store_true", help="also measure how models slow one another down")
    add("--rounds", type=int, default=1, help="median of the latencies in this many processes")
    add("--pace", type=float, default=1.0, help="factor on the time spent on each")
    namespace = parser.parse_args(arguments)
    if not namespace.models:
        parser.error("name the models to measure")
    return namespace


def common_options(program: str, description: str) -> argparse.ArgumentParser:
    """A parser of what all commands of this package take; the caller sets the defaults."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="names of the zoo or package.module:Class")
    add("--gpu", type=int, default=0, help="the GPU's number")
    add("--driver", choices=tuple(DRIVERS), help="what divides the GPU (default %(default)s)")
    add("--board", help="the expected board; required for --driver cpu")
    add("--budget-s", type=float, help="start nothing that ends later (default %(default)s)")
    add("--out", type=Path, help="the results (default %(default)s)")
    add("--fresh", action="store_true", help="discard the measurements of an earlier run")
    add("--dry-run", action="store_true", help="list what would be measured")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(number) for number in text.split(",")}))


if __name__ == "__main__":
    sys.exit(main())
