"""Verbs for profiles: profile (measure, or compare two files) and profiles (list)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migrator.cli.app import AsJson, app, print_json, progress
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.catalogue import Board
    from migrator.profiling.measurements import Measurement
    from migrator.profiling.run import Profiled
    from migrator.workload.models_to_profile import ModelToProfile

_MOST_BATCH = 1024


@app.command("profile")
def profile_models(
    scenario: Annotated[
        Path | None, typer.Argument(help="Scenario whose models are measured (YAML).")
    ] = None,
    gpu: Annotated[int, typer.Option(min=0, help="Index of the GPU, as in nvidia-smi.")] = 0,
    driver: Annotated[
        str, typer.Option(metavar="mps|mig|cpu", help="How the GPU is partitioned; cpu: dry run.")
    ] = "mps",
    batches: Annotated[
        str, typer.Option(metavar="N,N...", help="Batch sizes to measure.")
    ] = "1,4,16",
    interference: Annotated[
        bool, typer.Option("--interference", help="Also measure how models slow each other down.")
    ] = False,
    rounds: Annotated[
        int, typer.Option(min=1, max=9, help="Processes per latency; their median counts.")
    ] = 1,
    pace: Annotated[
        float, typer.Option(min=0.02, max=100, help="Factor on the time per measurement.")
    ] = 1.0,
    budget_s: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="Start no measurement that would end later."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Profile file; default: SCENARIO.profiles.json."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Discard measurements of an interrupted run.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the measurements and their estimated time.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="Measure nothing; compare two profile files."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a scenario's models on every instance size of a GPU and write profiles.

    Try first:  migrator profile my.yaml --dry-run

    Then set the file as `profile` of the tenants. An interrupted run resumes where it stopped.
    """
    if compare is not None:
        _compare(*compare, as_json=as_json)
        return
    if scenario is None:
        raise InputError("SCENARIO: name the scenario whose models are measured")
    from migrator.core.registry import pick
    from migrator.profiling.drivers import DRIVERS
    from migrator.profiling.measurements import ImageSizes, measurements, on_instances
    from migrator.workload.models_to_profile import read_models

    board, served = read_models(scenario)
    todo = measurements(
        board,
        list(dict.fromkeys(model.model for model in served)),
        _counts(batches),
        images={model.model: ImageSizes(model.pixels, model.input_pixels) for model in served},
        interference=interference,
        rounds=rounds,
        pace=pace,
    )
    if dry_run:
        coexist = pick("--driver", driver, DRIVERS).coexist
        list_measurements(todo if coexist else on_instances(todo), as_json)
        return
    from migrator.profiling.drivers import driver as driver_named
    from migrator.profiling.results import Results, beside
    from migrator.profiling.run import profile, require_torch

    path = out or Path(f"{scenario.stem}.profiles.json")
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"--out: {path} cannot be written; name a file in a directory that exists")
    gpu_driver = driver_named(driver, gpu, board)
    require_torch()
    head = {"driver": gpu_driver.name, "board": gpu_driver.board.name, **gpu_driver.about}
    results = Results(beside(path), head, fresh=fresh)
    longest_s = float("inf") if budget_s is None else budget_s
    with progress(len(todo), "measuring") as step:
        done = profile(
            todo,
            gpu_driver,
            results,
            path,
            budget_s=longest_s,
            report=lambda _measurement, _row: step(),
        )
    _report(done, board, served, path, as_json)


@app.command()
def profiles(
    file: Annotated[
        Path | None, typer.Argument(help="Profile file; default: the packaged profiles.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the packaged profiles, or those in a file."""
    from migrator.core.profiles import profiles as packaged

    listed = list(packaged().values())
    if file is not None:
        from migrator.workload.profile_file import read_profiles

        listed = list(read_profiles(file))
    if as_json:
        print_json(
            [
                {
                    "model": entry.model,
                    "board": entry.board,
                    "batches": sorted(entry.latency_ms),
                    "provenance": entry.provenance,
                }
                for entry in listed
            ]
        )
        return
    for entry in listed:
        sizes = ", ".join(f"{batch}" for batch in sorted(entry.latency_ms))
        print(f"{entry.model:<18} {entry.board:<12} batches {sizes}; {entry.provenance}")


def _counts(text: str) -> list[int]:
    parts = text.split(",")
    if not all(word.strip().isdecimal() and 0 < int(word) <= _MOST_BATCH for word in parts):
        raise InputError(
            f"--batches: {text[:60]!r} is not a list of batches; write numbers from 1 to "
            f"{_MOST_BATCH}, such as 1,4,16"
        )
    return sorted({int(word) for word in parts})


def list_measurements(todo: Sequence[Measurement], as_json: bool) -> None:
    """Print what would be measured, and how long it would take."""
    from migrator.profiling.measurements import estimate_s, listed

    if as_json:
        rows = [{"study": job.study, "what": job.description} for job in todo]
        print_json({"measurements": rows, "seconds": round(estimate_s(todo))})
    else:
        print(listed(todo))


def _report(
    done: Profiled, board: Board, served: Sequence[ModelToProfile], path: Path, as_json: bool
) -> None:
    capability = _capabilities(done, board, served)
    if as_json:
        answer = {"out": str(path), "measured": done.measured, "taken_over": done.taken_over}
        more = {"left": done.left, "faults": done.faults, "capability_rps": capability}
        print_json({**answer, **more, "profiles": done.profiles})
        return
    for profile in done.profiles:
        print(_table(profile, board))
    print("capability within the objective, requests per second")
    for tenant, by_size in capability.items():
        sizes = "  ".join(f"{gpcs}g {rps:.0f}" for gpcs, rps in by_size.items())
        print(f"  {tenant:<14} {sizes}")
    for fault in done.faults:
        print(f"note: {fault}", file=sys.stderr)
    if not done.measured:
        print("everything was already measured; --fresh measures it again")
    if done.left:
        print(f"{done.left} measurements are left; run the same command again to continue")
    print(f"profiles  {path}")


def _capabilities(
    done: Profiled, board: Board, served: Sequence[ModelToProfile]
) -> dict[str, dict[int, float]]:
    """Tenant -> GPCs -> requests per second that one instance answers in time."""
    from migrator.core.profiles import Service, profile_of

    profiles = {profile["model"]: profile_of(profile) for profile in done.profiles}
    return {
        model.tenant: {
            gpcs: round(rps, 1)
            for gpcs, rps in Service(model.tenant, profiles[model.model], model.slo_s, model.batch)
            .capabilities_rps(board)
            .items()
        }
        for model in served
        if model.model in profiles
    }


def _table(entry: dict[str, Any], board: Board) -> str:
    """A profile as text: milliseconds by batch and size, median and 99th percentile; then the
    rest."""
    lines = [f"{entry['model']} on {entry['board']}: milliseconds, median / 99th percentile"]
    for batch, by_sms in entry["latency_ms"].items():
        p99 = entry["latency_p99_ms"][batch]
        cells = [
            f"{gpcs}g {by_sms[sms]:.3g} / {p99[sms]:.3g}" if sms in by_sms else f"{gpcs}g -"
            for gpcs in board.sizes
            for sms in (str(board.sms_of(gpcs)),)
        ]
        memory = entry["memory_mib"][batch]
        lines.append(f"  batch {batch:<4} {'   '.join(cells)}   ({memory:.0f} MiB)")
    rest = ("training_ratio", "interference", "contention")
    lines.append("  " + "   ".join(f"{name} {entry[name]:.3g}" for name in rest))
    parts = {**entry["overhead"], **entry["overhead_parts_s"]}
    lines.append("  start: " + "   ".join(f"{name} {part:.2g}" for name, part in parts.items()))
    return "\n".join(lines)


def _compare(first: Path, second: Path, *, as_json: bool) -> None:
    from dataclasses import asdict

    from migrator.profiling.comparison import compare
    from migrator.workload.profile_file import read_profiles

    differences = compare(read_profiles(first), read_profiles(second))
    if as_json:
        print_json([asdict(difference) for difference in differences])
        return
    for difference in differences:
        print(difference.line())
