"""The results file: kept runs, an unfinished line, files that are refused."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.results_file import Key, open_results
from benchmarks.runs import outcomes_of
from migrator.core.errors import InputError
from migrator.reproduce.experiment import Setting
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob

SETTINGS = {"code": "these", "runs": 5}
KEY = ("cell", 0)


@dataclass(frozen=True)
class Outcome:
    goodput: int


def _kept(path: Path) -> dict[Key, Outcome]:
    with open_results(path, "runs", Outcome, SETTINGS) as file:
        return dict(file.finished)


def test_results_are_kept(tmp_path: Path) -> None:
    path, result = tmp_path / "runs.jsonl", Outcome(600)
    with open_results(path, "runs", Outcome, SETTINGS) as file:
        file.add(KEY, result)
        with (
            pytest.raises(InputError, match="another process writes"),
            open_results(path, "runs", Outcome, SETTINGS),
        ):
            pass
    assert _kept(path) == {KEY: result}


def test_an_unfinished_line_is_run_again(tmp_path: Path) -> None:
    path, result = tmp_path / "runs.jsonl", Outcome(600)
    with open_results(path, "runs", Outcome, SETTINGS) as file:
        file.add(KEY, result)
        whole = path.read_bytes()
        file.add(("cell", 1), result)
    path.write_bytes(path.read_bytes()[:-30])
    assert _kept(path) == {KEY: result}
    assert path.read_bytes() == whole
    path.write_bytes(whole[:9])
    assert _kept(path) == {}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda lines: [b"hello", *lines[1:]], "is not a results file"),
        (lambda _: [b"hello"], "is not a results file"),
        (lambda lines: [lines[0].replace(b'"runs":5', b'"runs":6'), *lines[1:]], r"other .*\(runs"),
        (lambda lines: [lines[0], b"{}", *lines[1:]], "line 2 of .* is damaged"),
        (lambda lines: [lines[0], lines[1].replace(b"600", b'"x"')], "line 2 of .* is damaged"),
        (lambda lines: [*lines, lines[1]], "line 3 of .* is damaged"),
    ],
)
def test_other_and_damaged_files_are_refused(
    tmp_path: Path, spoil: Callable[[list[bytes]], list[bytes]], sentence: str
) -> None:
    path = tmp_path / "runs.jsonl"
    with open_results(path, "runs", Outcome, SETTINGS) as file:
        file.add(KEY, Outcome(600))
    lines = path.read_bytes().splitlines()
    spoilt = b"\n".join(spoil(lines)) + b"\n"
    path.write_bytes(spoilt)
    with pytest.raises(InputError, match=f"--keep: .*{sentence}"):
        _kept(path)
    assert path.read_bytes() == spoilt


def test_a_file_is_read_while_another_process_of_other_code_writes_it(tmp_path: Path) -> None:
    path, other = tmp_path / "runs.jsonl", SETTINGS | {"code": "other"}
    with open_results(path, "runs", Outcome, SETTINGS) as file:
        file.add(KEY, Outcome(600))
        with path.open("ab") as unfinished:
            unfinished.write(b'{"cell":')  # it writes just now
        before = path.read_bytes()
        with open_results(path, "runs", Outcome, other, to_read=True) as shown:
            assert shown.finished == {KEY: Outcome(600)}
            assert shown.settings == SETTINGS
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="cannot read"):
        open_results(tmp_path / "none", "runs", Outcome, {}, to_read=True).__enter__()


def test_a_second_call_runs_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    asked = argparse.Namespace(keep=path, processes=1)
    jobs = [
        SimulationJob(WorkloadSource("W1"), "equal-mig", seed=seed, windows=1) for seed in (0, 1)
    ]
    first = outcomes_of(jobs[:1], Setting(), asked)
    written = path.read_bytes()
    both = outcomes_of(jobs, Setting(), asked)
    assert both[jobs[0]].tally == first[jobs[0]].tally
    assert both[jobs[1]].tally != first[jobs[0]].tally
    assert path.read_bytes().startswith(written)
    assert path.read_bytes().count(b"\n") == 3
    asked.keep = None
    assert outcomes_of(jobs[:1], Setting(), asked)[jobs[0]].tally == first[jobs[0]].tally
