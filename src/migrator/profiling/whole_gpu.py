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
from typing import Any

from migrator.core import catalogue
from migrator.core.catalogue import Place
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.base import GpuInstance
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
    undisturbed,
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
    make_room: bool = False,
    beside_others: bool = False,
    fresh: bool = False,
    report: Report = lambda _measurement, _row: None,
) -> Measured:
    """Measure what the folder lacks within the budget; write the profiles and the page.

    `make_room`: remove unused instances, and create them again at the end. `beside_others`: measure
    although other programs use the GPU, on the instances that fit beside theirs. Raises GpuError
    without one of them if the GPU is not empty.
    """
    until_s = time.monotonic() + budget_s
    require_torch()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: {folder} cannot be made ({error.strerror})") from error
    head = {"driver": driver.name, "board": driver.board.name, **driver.about}
    results = _results(folder / "measurements.jsonl", head, fresh=fresh)
    measured = 0
    try:
        with (
            ended_by_signals(),
            _left_as_found(driver, results, make_room=make_room, beside_others=beside_others),
        ):
            fit = {sizes for sizes in {job.shares for job in todo} if driver.has_room(sizes)}
            fitting = [job for job in todo if job.shares in fit]
            if not fitting:
                raise GpuError("no instance fits beside those that are there; give --make-room")
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


def _results(path: Path, head: Json, *, fresh: bool) -> Results:
    """The measurements; fresh ones still know what a killed run has to put back."""
    kept: list[Json] = []
    if fresh and path.exists():
        with suppress(InputError):
            rows = Results(path, head).rows
            kept = [rows[key] for key in ("before", "after") if key in rows]
    results = Results(path, head, fresh=fresh)
    for row in kept:
        results.add(row)
    return results


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
def _left_as_found(
    driver: Driver, results: Results, *, make_room: bool, beside_others: bool
) -> Iterator[None]:
    """Save what is on the GPU, and have it there again at the end, also of an earlier run that was
    killed.
    """
    _remove_own(driver)
    before = _state_of(driver)
    wanted = [*before["instances"]]
    wanted += [there for there in _removed_by_killed_run(results) if there not in wanted]
    removable = _removable(driver, make_room=make_room, beside_others=beside_others)
    run = results.rows.get("before", {}).get("run", 0) + 1
    results.add({"key": "before", "run": run, **before, "instances": wanted})
    try:
        with undisturbed():
            if isinstance(driver, Mig):
                for instance in removable:
                    driver.remove(instance)
        yield
    finally:
        with undisturbed():
            with suppress(MigratorError):  # what is left is named below
                _remove_own(driver)
            faults = _create_missing(driver, wanted)
            after = _state_of(driver)
            changed = [*faults, *_differences({**before, "instances": wanted}, after)]
            changed += filter(None, [driver.left_behind()])
            restored = all(instance in after["instances"] for instance in wanted)
            removed = [str(instance.place) for instance in removable]
            about = {"run": run, "removed": removed, "restored": restored, "changed": changed}
            results.add({"key": "after", **about, **after})


def _remove_own(driver: Driver) -> None:
    """Remove what this run or a killed one created and could not destroy."""
    if isinstance(driver, Mig):
        with driver.open():
            pass


def _removed_by_killed_run(results: Results) -> list[list[Any]]:
    """The instances before an earlier run that could not put them back; none without one."""
    before, after = results.rows.get("before"), results.rows.get("after", {})
    if before is None or (after.get("run") == before["run"] and after["restored"]):
        return []
    instances: list[list[Any]] = before["instances"]
    return instances


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


def _removable(driver: Driver, *, make_room: bool, beside_others: bool) -> list[GpuInstance]:
    """The unused instances, if they make room. GpuError if the GPU is not empty without them."""
    there = driver.instances()
    unused = [instance for instance in there if make_room and not instance.holders]
    staying = [instance for instance in there if instance not in unused]
    processes = driver.processes()
    if processes and not beside_others:
        raise GpuError(
            f"GPU {driver.index} is in use by {', '.join(map(str, processes))}; end that, or give "
            "--beside-others to measure beside it what it then disturbs"
        )
    if staying and not beside_others:
        places = ", ".join(str(instance.place) for instance in staying)
        raise GpuError(
            f"GPU {driver.index} has instances ({places}); give --make-room to remove the unused "
            "ones and create them again at the end, or --beside-others to measure what fits beside "
            "them"
        )
    return unused


def _create_missing(driver: Driver, wanted: Sequence[Sequence[Any]]) -> list[str]:
    """Create the wanted instances that are not there; one sentence per place that cannot be."""
    if not isinstance(driver, Mig):
        return []
    there = {instance.place for instance in driver.instances()}
    faults = []
    for start, profile in wanted:
        place = Place(start, profile)
        if place not in there:
            try:
                driver.create_again(place)
            except MigratorError as error:
                faults.append(f"{place} could not be created again: {error}")
    return faults


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
        make_room=options.make_room,
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
    add("--make-room", action="store_true", help="remove unused instances, and put them back")
    add("--beside-others", action="store_true", help="measure although others use the GPU")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
