"""`--records` and `--report` of simulate and compare: simulated runs as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome
from migrator.policies.registry import policy
from migrator.records.runs import RecordedRun
from migrator.records.simulated import (
    Simulated,
    check_records_path,
    simulated_run,
    write_simulations,
)
from migrator.simulate.compare import Job
from migrator.simulate.run import overheads_s

check = check_records_path


def recorded(job: Job, outcome: RunOutcome) -> RecordedRun:
    """A simulated run in the form that reports read."""
    return simulated_run(_simulated(job, outcome))


def write(path: Path, jobs: Sequence[Job], outcomes: Sequence[RunOutcome]) -> None:
    """Write all runs into one file."""
    write_simulations(path, [_simulated(*each) for each in zip(jobs, outcomes, strict=True)])


def files_in(folder: Path, policies: Sequence[str]) -> Mapping[str, Path]:
    """Create a folder with a file per policy; InputError if that fails."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--records: cannot make the folder {folder} ({error.strerror}); name another"
        ) from error
    found = {name: folder / f"{name}.db" for name in policies}
    for path in found.values():
        check(path)
    return found


def write_each(
    files: Mapping[str, Path], jobs: Sequence[Job], outcomes: Sequence[RunOutcome]
) -> None:
    """Write the runs of every policy into its file."""
    for name, path in files.items():
        own = [each for each in zip(jobs, outcomes, strict=True) if each[1].policy == name]
        write(path, [job for job, _ in own], [outcome for _, outcome in own])


def _simulated(job: Job, outcome: RunOutcome) -> Simulated:
    scenario = job.scenario()
    return Simulated(outcome, scenario, overheads_s(scenario, policy(outcome.policy)))
