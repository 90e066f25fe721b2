"""`migrator gpu measure`: what it measures, its page, and that the GPU is left as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support import PYTHONPATH
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml
from support.gpu_cli import gpu
from support.nvidia_programs import NvidiaPrograms
from support.waiting import LIMIT_S, until

from migrator.core.catalogue import board
from migrator.core.errors import GpuError
from migrator.core.profiles import profile_of
from migrator.profiling.drivers import Mig, Mps, driver
from migrator.profiling.measurements import Measurement, Study, WorkKind, whole_gpu
from migrator.profiling.results import Results
from migrator.profiling.whole_gpu import Measured, measure_gpu, planned

TINY = "support.tiny_model:Tiny"
A30 = board("A30-24GB")
QUICK = 0.02


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """A machine with one A30 in MIG mode; the CPU computes."""
    monkeypatch.setattr(Mig, "device", "cpu")
    with installed(tmp_path / "fake", ["A30-24GB"]) as machine:
        yield machine


def some(*wanted: Callable[[Measurement], bool]) -> list[Measurement]:
    """The first measurement of each kind."""
    listed = whole_gpu(A30, [TINY], [1, 4], on_instances=True, pace=QUICK)
    return [next(filter(choose, listed)) for choose in wanted]


def small() -> list[Measurement]:
    """On the smallest size alone, beside its siblings, and its bandwidth."""
    return some(
        lambda job: job.study is Study.LATENCY and job.jobs[0][0] == 14,
        lambda job: job.study is Study.BANDWIDTH and job.jobs[0][0] == 14,
        lambda job: [sms for sms, _ in job.jobs] == [14] * 4,
    )


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["A30-24GB", "A100-40GB", "H200-141GB"])
@pytest.mark.parametrize("on_instances", [True, False])
def test_every_size_is_measured_alone_and_beside_neighbours_that_fit(
    name: str, on_instances: bool
) -> None:
    divided = board(name)
    listed = whole_gpu(divided, ["resnet-50", TINY], [1, 4, 16], on_instances=on_instances)
    assert len({job.key for job in listed}) == len(listed)
    sizes = {divided.sms_of(gpcs) for gpcs in divided.sizes}
    for study in (Study.LATENCY, Study.TRAINING, Study.BANDWIDTH):
        assert {job.jobs[0][0] for job in listed if job.study is study} == sizes
    together = [job for job in listed if len(job.jobs) > 1]
    for job in together:
        assert sum(sms for sms, _ in job.jobs) <= divided.sms
    tasks = {task.task for job in together for _, task in job.jobs}
    assert tasks == {WorkKind.INFERENCE, WorkKind.TRAINING, WorkKind.COPY}
    # what instances do to one another is not the interference of a profile
    assert any(job.study is Study.INTERFERENCE for job in listed) is not on_instances


@dataclass(frozen=True)
class Finished:
    """A GPU of which all is measured, and the instances that it then has."""

    listed: list[Measurement]
    out: Path
    done: Measured
    layout: list[str]


def few_beside(listed: list[Measurement]) -> list[Measurement]:
    """Without most of those beside neighbours: every process takes seconds to start."""
    beside = [job for job in listed if len(job.jobs) > 1]
    siblings = next(job for job in beside if set(job.jobs) == {job.jobs[0]})
    kept = [siblings, *(job for job in beside if job.jobs[-1][1].task is WorkKind.COPY)]
    return [job for job in listed if job not in beside or job in kept]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("whole")
    listed = few_beside(whole_gpu(A30, [TINY], [1, 4], on_instances=True, pace=QUICK))
    with pytest.MonkeyPatch.context() as patch, installed(folder / "fake", ["A30-24GB"]) as fake:
        patch.setattr(Mig, "device", "cpu")
        patch.setenv("PYTHONPATH", PYTHONPATH)
        patch.setenv("MIGRATOR_STATE", str(folder / "state"))
        done = measure_gpu(listed, Mig.find(0), folder / "out", command="measure")
        return Finished(listed, folder / "out", done, fake.layout())


def test_all_of_a_gpu_and_nothing_is_left(finished: Finished) -> None:
    done, out = finished.done, finished.out
    every = len(finished.listed)
    assert (done.measured, done.left, done.faults, done.changed) == (every, 0, (), ())
    assert finished.layout == []
    (entry,) = json.loads((out / "profiles.json").read_text())["profiles"]
    profile = profile_of(entry)
    assert sorted(profile.latency_ms) == [1, 4]
    assert "create_s measured" in profile.provenance
    page = (out / "report.md").read_text()
    assert page.startswith("# NVIDIA A30-24GB measured under mig\n\n`measure`, MIGRator")
    assert "Unfinished" not in page
    assert "Slowdown beside busy neighbours (assumed: none on MIG instances): median" in page
    assert "- The GPU is as it was before." in page
    (size,) = [line for line in page.splitlines() if line.startswith("| 2g.12gb |")]
    assert "-" not in size.removeprefix("| 2g.12gb | 28 | - | 11.69 |"), size
    assert f"| inference of {TINY}, batch 1, on 14 SMs beside 3 x copy of device memory" in page
    assert f"| training of {TINY}, batch 32, on 28 SMs beside 2 x copy of device memory" in page
    for what in ("quiet", "create", "start"):
        assert f"| {TINY} | {what} | " in page
    assert "Slowdown while a share beside it changes (assumed: none): median" in page
    assert page.endswith("## Left out\n\nNothing.\n")


def test_what_is_measured_is_not_measured_again(finished: Finished, fake: FakeNvml) -> None:
    again = measure_gpu(finished.listed, Mig.find(0), finished.out, command="measure")
    assert (again.measured, again.left) == (0, 0)
    assert fake.layout() == []


def test_an_inference_is_watched_while_instances_beside_it_change(finished: Finished) -> None:
    (row,) = [row for row in rows_in(finished.out) if row.get("study") == "changes"]
    (neighbour,) = row["jobs"]
    assert neighbour["p50_ms"] > 0
    # five without a process, and then with one
    during = neighbour["during"]
    assert [during[what]["changes"] for what in ("create", "start", "stop", "destroy")] == [
        *(6, 1, 1, 6)
    ]
    for figures in neighbour["during"].values():
        assert figures["steps"] > 0
        assert figures["longest_ms"] >= figures["p99_ms"] >= figures["p50_ms"] > 0


@pytest.mark.parametrize(("budget_s", "created"), [(0.1, 0), (200.0, 5)])
def test_nothing_begins_that_cannot_end_within_the_budget(
    fake: FakeNvml, tmp_path: Path, budget_s: float, created: int
) -> None:
    """0.1 s are too short to create an instance, 200 s for measurements that take longer."""
    todo = some(lambda job: job.study is Study.CHANGES) + small()
    todo = [replace(job, stretch=1000) for job in todo]
    done = measure_gpu(todo, Mig.find(0), tmp_path, command="measure", budget_s=budget_s)
    assert (done.measured, done.left, done.changed) == (0, 4, ())
    rows = rows_in(tmp_path)
    assert not any("study" in row for row in rows)
    made = [row for row in rows if row.get("key", "").startswith("reconfiguration")]
    assert len(made) == created
    assert fake.layout() == []


def test_a_gpu_in_use_is_refused(fake: FakeNvml, tmp_path: Path) -> None:
    fake.hold(None, os.getpid())
    with pytest.raises(GpuError, match=rf"is in use by .*process {os.getpid()}.*--beside-others"):
        measure_gpu(small(), Mig.find(0), tmp_path, command="measure")
    fake.release()
    fake.foreign(2, "2g.12gb")
    with pytest.raises(GpuError, match=r"has instances \(2g.12gb at 2\); save them with"):
        measure_gpu(small(), Mig.find(0), tmp_path, command="measure")
    assert fake.layout() == ["2g.12gb at 2"]
    assert not (tmp_path / "report.md").exists()


def test_what_fits_beside_others_is_measured(fake: FakeNvml, tmp_path: Path) -> None:
    fake.foreign(2, "2g.12gb")
    fake.hold(2, os.getpid())
    done = measure_gpu(small(), Mig.find(0), tmp_path, command="measure", beside_others=True)
    assert (done.measured, done.left, done.changed) == (2, 1, ())
    assert fake.layout() == ["2g.12gb at 2"]
    page = (tmp_path / "report.md").read_text()
    assert "**Unfinished: 2 of 3 measurements.**" in page
    assert f"- not measured: 4 times inference of {TINY}" in page


def test_an_error_leaves_the_gpu_as_it_was(fake: FakeNvml, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure_gpu(small(), Mig.find(0), tmp_path, command="measure", report=fail)
    assert fake.layout() == []
    assert "**Unfinished: 1 of 3 measurements.**" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_leaves_the_gpu_as_it_was_at_once_or_in_the_next_run(
    fake: FakeNvml, tmp_path: Path, number: int, code: int
) -> None:
    out, rows = tmp_path / "out", tmp_path / "out" / "measurements.jsonl"
    words = ["profiling.measuring", str(tmp_path / "fake"), TINY, "--out", str(out)]
    run = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
    until(lambda: rows.exists() and '"study": "latency"' in rows.read_text())
    assert fake.layout() == ["4g.24gb at 0"]
    run.send_signal(number)
    run.communicate(timeout=LIMIT_S)
    assert run.returncode == code
    if number == signal.SIGKILL:
        assert fake.layout() == ["4g.24gb at 0"]
        fake.release()
        measure_gpu(small()[:1], Mig.find(0), out, command="measure")
    else:
        assert "**Unfinished: " in (out / "report.md").read_text()
    assert fake.layout() == []


def test_shares_need_no_instances_and_the_daemon_is_gone(
    programs: NvidiaPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mps, "device", "cpu")
    listed = planned(board("H200-141GB"), "mps", [TINY], quick=True)
    todo = [job for job in listed if [sms for sms, _ in job.jobs] == [16]][:2]
    beside = (job for job in listed if job.study is Study.INTERFERENCE)
    todo.append(min(beside, key=lambda job: len(job.jobs)))
    (change,) = (job for job in listed if job.study is Study.CHANGES)
    todo.append(replace(change, stretch=QUICK))
    done = measure_gpu(todo, Mps.find(0), tmp_path, command="measure")
    assert (done.measured, done.faults, done.changed) == (4, (), ())
    assert [line.partition(" ")[0] for line in programs.log()] == ["start", "quit"]
    page = (tmp_path / "report.md").read_text()
    assert f"| {TINY} | start | " in page
    assert f"| {TINY} | create | " not in page
    assert "Shares are not created" in page
    assert "mig.mode.current Disabled, compute_mode Default" in page


def test_the_verb(tmp_path: Path) -> None:
    cpu = ("--driver", "cpu", "--board", "A30-24GB", TINY)
    listed = gpu("measure", *cpu, "--dry-run", "--json").json
    assert listed["seconds"] > 0
    assert {job["study"] for job in listed["measurements"]} == {study.value for study in Study}
    assert gpu("measure", *cpu, TINY, "--dry-run", "--json").json == listed
    none = gpu("measure", *cpu, "--quick", "--budget-s", "1", "--out", tmp_path / "none")
    assert none.code == 0, none.err
    assert none.out.splitlines()[-1] == "nothing was measured; raise --budget-s"
    todo = planned(A30, "cpu", [TINY], quick=True)
    measure_gpu(todo[:1], driver("cpu", 0, A30), tmp_path / "out", command="interrupted")
    # goes on from there; one second is too short for any
    done = gpu("measure", *cpu, "--quick", "--budget-s", "1", "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert (done.json["measured"], done.json["left"]) == (0, len(todo) - 1)
    page = (tmp_path / "out" / "report.md").read_text()
    assert f"`migrator gpu measure {TINY} --driver cpu --board A30-24GB --quick`" in page


def test_a_folder_of_another_gpu_is_refused(tmp_path: Path) -> None:
    Results(tmp_path / "measurements.jsonl", {"driver": "mig"})
    refused = gpu("measure", "--driver", "cpu", "--board", "A30-24GB", TINY, "--out", tmp_path)
    assert "holds measurements of another GPU" in refused.refusal
