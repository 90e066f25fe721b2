"""Measure a GPU as a whole and leave it as it was: `migrator gpu measure`.

Beside what profiles need: every size's device memory and bandwidth, what busy neighbours do to an
instance, how long instances take to create and to destroy, and what that does to a busy neighbour.
The folder of results has

measurements.jsonl  every measurement, written at once, so that the same command goes on
profiles.json       a profile file
report.md           one page with all figures beside what simulations assume (`gpu_report`)

Needs only torch and numpy, and pynvml for MIG: `python -m migrator.profiling.whole_gpu` does the
same where nothing else is installed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from migrator.core import catalogue
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers import nvidia_smi
from migrator.io.atomic_write import write_atomically
from migrator.profiling import measurements
from migrator.profiling.__main__ import common_options, print_measurement, run
from migrator.profiling.drivers import DRIVERS, Cpu, Driver, Json, Mig, driver
from migrator.profiling.entries import CREATE_S
from migrator.profiling.gpu_report import render
from migrator.profiling.measurements import Measurement
from migrator.profiling.results import Results
from migrator.profiling.run import (
    Report,
    ended_by_signals,
    faults_of,
    measure,
    require_torch,
    write_profiles,
)

MODELS = ("resnet-50", "convnext-b", "bert-base")
BATCHES = (1, 4, 16)
QUICK_MODELS, QUICK_PACE = MODELS[:1], 0.5
BUDGET_S = 1500.0
"""With what is under way when it ends, and the end itself, less than half an hour."""
CYCLES = 5
"""Creations of each size without a process."""


@dataclass(frozen=True)
class Measured:
    """Result of a run."""

    folder: Path
    measured: int
    left: int
    """Number of measurements without time left."""
    faults: tuple[str, ...]
    changed: tuple[str, ...]
    """How the GPU differs from what it was before; empty if it does not."""


def planned(
    board: catalogue.Board, driver_name: str, models: Sequence[str], *, quick: bool = False
) -> list[Measurement]:
    """What is measured on a board; `quick`: one model, half the time per measurement."""
    return measurements.whole_gpu(
        board,
        list(dict.fromkeys(models)) or (QUICK_MODELS if quick else MODELS),
        BATCHES,
        on_instances=not DRIVERS[driver_name].coexist,
        pace=QUICK_PACE if quick else 1.0,
    )


def measure_gpu(
    todo: Sequence[Measurement],
    driver: Driver,
    folder: Path,
    *,
    command: str,
    budget_s: float = BUDGET_S,
    beside_others: bool = False,
    fresh: bool = False,
    report: Report = lambda _measurement, _row: None,
) -> Measured:
    """Measure what the folder lacks within the budget; write the profiles and the page.

    `beside_others`: measure although other programs use the GPU, on the instances that fit beside
    theirs. Raises GpuError without it if the GPU is not empty.
    """
    until_s = time.monotonic() + budget_s
    require_torch()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--out: {folder} cannot be made ({error.strerror}); name another folder"
        ) from error
    head = {"driver": driver.name, "board": driver.board.name, **driver.about}
    results = Results(folder / "measurements.jsonl", head, fresh=fresh)
    measured = 0
    try:
        with (
            ended_by_signals(),
            _left_as_found(driver, results, beside_others=beside_others),
        ):
            fit = {sizes for sizes in {job.shares for job in todo} if driver.has_room(sizes)}
            fitting = [job for job in todo if job.shares in fit]
            if not fitting:
                raise GpuError("no instance fits beside those that are there; remove some")
            _create_and_destroy(driver, fitting, results, until_s)
            measured = measure(fitting, driver, results, until_s, report)
    finally:
        _write(todo, driver, results, folder, command)
    return Measured(
        folder,
        measured,
        sum(not results.has(job.key) for job in todo),
        faults_of(todo, results),
        tuple(results.rows["after"]["changed"]),
    )


def _write(
    todo: Sequence[Measurement], driver: Driver, results: Results, folder: Path, command: str
) -> None:
    """Write what there is, also of a run that was interrupted."""
    if not any("jobs" in row for row in results.rows.values()):
        return
    profiles: list[Json] = []
    with suppress(MigratorError):  # without a latency there is no profile
        profiles = write_profiles(todo, driver, results, folder / "profiles.json")
    with write_atomically(folder / "report.md") as unfinished:
        page = render(driver, todo, results, profiles, command)
        unfinished.write_text(page, encoding="utf-8")


@contextmanager
def _left_as_found(driver: Driver, results: Results, *, beside_others: bool) -> Iterator[None]:
    """Save what is on the GPU before and after, and remove what this run and killed ones created.

    Raises GpuError if the GPU is not empty, unless `beside_others`.
    """
    _remove_own(driver)
    if not beside_others:
        _require_empty(driver)
    before = _state_of(driver)
    results.add({"key": "before", **before})
    try:
        yield
    finally:
        with suppress(MigratorError):  # what is left is named below
            _remove_own(driver)
        after = _state_of(driver)
        changed = [*_differences(before, after), *filter(None, [driver.left_behind()])]
        results.add({"key": "after", "changed": changed, **after})


def _remove_own(driver: Driver) -> None:
    """Remove what this run or a killed one created and could not destroy."""
    if isinstance(driver, Mig):
        with driver.open():
            pass


def _state_of(driver: Driver) -> Json:
    """Instances, processes and modes."""
    modes: dict[str, str] = {}
    if not isinstance(driver, Cpu):
        with suppress(InputError):  # MIG needs no nvidia-smi
            modes = nvidia_smi.modes(driver.index)
    return {
        "instances": [
            [instance.place.start, instance.place.profile] for instance in driver.instances()
        ],
        "processes": [str(process) for process in driver.processes()],
        "modes": modes,
    }


def _require_empty(driver: Driver) -> None:
    processes, places = driver.processes(), [str(there.place) for there in driver.instances()]
    if processes:
        raise GpuError(
            f"GPU {driver.index} is in use by {', '.join(map(str, processes))}; end that, or give "
            "--beside-others to measure beside it what it then disturbs"
        )
    if places:
        raise GpuError(
            f"GPU {driver.index} has instances ({', '.join(places)}); save them with `migrator gpu "
            "export` and remove them, or give --beside-others to measure what fits beside them"
        )


def _differences(before: Json, after: Json) -> Iterator[str]:
    for instance in before["instances"]:
        if instance not in after["instances"]:
            yield f"{instance[1]} at {instance[0]} was there before"
    for instance in after["instances"]:
        if instance not in before["instances"]:
            yield f"{instance[1]} at {instance[0]} was not there before"
    for name, value in before["modes"].items():
        if after["modes"].get(name) != value:
            yield f"{name} was {value} and is {after['modes'].get(name)}"


def _create_and_destroy(
    driver: Driver, todo: Sequence[Measurement], results: Results, until_s: float
) -> None:
    """Create and destroy each size several times, without processes."""
    if not isinstance(driver, Mig):
        return
    sizes = {sms for job in todo for sms, _ in job.jobs}
    made = [row["sms"] for row in results.reconfigurations()]
    longest_s = CREATE_S
    with driver.open():
        for sms in sorted(sizes, reverse=True):
            for _ in range(CYCLES - made.count(sms)):
                began_s = time.monotonic()
                if began_s + longest_s > until_s:
                    return
                with driver.share(sms):
                    pass
                longest_s = max(longest_s, time.monotonic() - began_s)
                results.add_reconfiguration(driver.reconfigurations.pop())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command without the rest of MIGRator."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return run(lambda: _main(_options(given), given))


def _main(options: argparse.Namespace, given: Sequence[str]) -> int:
    board = catalogue.board(options.board) if options.board else None
    opened = driver(options.driver, options.gpu, board)
    todo = planned(opened.board, options.driver, options.models, quick=options.quick)
    if options.dry_run:
        print(measurements.listed(todo))
        return 0
    done = measure_gpu(
        todo,
        opened,
        options.out,
        command=shlex.join(["python", "-m", "migrator.profiling.whole_gpu", *given]),
        budget_s=options.budget_s,
        beside_others=options.beside_others,
        fresh=options.fresh,
        report=print_measurement,
    )
    return print_measured(done)


def print_measured(done: Measured) -> int:
    """Print what was done; return the exit code."""
    for fault in done.faults:
        print(f"note: {fault}", file=sys.stderr)
    for line in done.changed:
        print(f"error: the GPU is not as it was: {line}", file=sys.stderr)
    if done.left:
        print(f"{done.left} measurements are left; the same command goes on")
    page = done.folder / "report.md"
    if page.exists():
        print(f"measured {done.measured}; send back {page} and profiles.json")
    else:
        print("nothing was measured; raise --budget-s")
    return 3 if done.changed else 0


def _options(given: Sequence[str]) -> argparse.Namespace:
    parser = common_options(
        "python -m migrator.profiling.whole_gpu",
        "Measure a GPU on every instance size and leave it as it was. "
        f"Without MODEL: {', '.join(MODELS)}.",
    )
    parser.set_defaults(driver="mig", out=Path("gpu-measured"), budget_s=BUDGET_S)
    add = parser.add_argument
    add("--quick", action="store_true", help="one model, and half the time per measurement")
    add("--beside-others", action="store_true", help="measure although others use the GPU")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
