"""Shares as MIG instances of a fake NVML; the CPU computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.children import child
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml, FaultKind

from migrator.core.catalogue import board
from migrator.core.errors import GpuError, InputError
from migrator.gpu.drivers.mig import open_mig
from migrator.gpu.journal import Journal, journal_path
from migrator.gpu.layout import BlockedError
from migrator.gpu.partitioner import Partitioner
from migrator.profiling import workers
from migrator.profiling.drivers import Mig
from migrator.profiling.drivers import driver as driver_called
from migrator.profiling.measurements import Study, measurements
from migrator.profiling.results import Results
from migrator.profiling.run import profile
from migrator.profiling.workers import Pool
from profiling.looking_model import MACHINE, SEEN

A30, LOOKING = board("A30-24GB"), "profiling.looking_model:Looking"

Machine = Callable[..., FakeNvml]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A fake machine with one GPU for the rest of the test; the CPU computes."""
    monkeypatch.setattr(Mig, "device", "cpu")
    with ExitStack() as stack:

        def install(name: str = "A30-24GB", *, mig: bool = True) -> FakeNvml:
            monkeypatch.setenv(MACHINE, str(tmp_path / name))
            return stack.enter_context(installed(tmp_path / name, [name], mig=mig))

        yield install


def test_a_share_is_an_instance_of_its_size(machine: Machine, state: Path) -> None:
    fake = machine("A100-40GB")
    driver = Mig.find(0)
    assert (driver.board, driver.device, driver.coexist) == (board("A100-40GB"), "cpu", False)
    assert driver.about["gpu"] == "NVIDIA A100-40GB"
    assert driver.readings() == {}
    with driver.open():
        with driver.share(42) as share:
            (instance,) = fake.instances()
            assert str(instance.place) == "3g.20gb at 0"
            assert share.environment["CUDA_VISIBLE_DEVICES"] == instance.uuid
            assert (share.sms, share.memory_gib) == (42, 19.5)
            with (
                open_mig(0, boot_id=fake.boot_id) as board_driver,
                Journal(journal_path(state)) as journal,
            ):
                assert Partitioner(board_driver, journal).owners() == {instance.place: "profile"}
        assert fake.instances() == ()
    (took,) = driver.reconfigurations
    assert took["sms"] == 42
    assert took["create_s"] > 0
    assert took["destroy_s"] > 0


def test_one_size_after_another_is_measured_and_its_creation_too(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = machine()
    fake.foreign(3, "1g.6gb")
    seen, out = tmp_path / "seen", tmp_path / "found.json"
    monkeypatch.setenv(SEEN, str(seen))
    listed = measurements(A30, [LOOKING], [1, 4], pace=0.02)
    wanted = [Study.LATENCY, Study.START]
    todo = [
        measurement
        for measurement in listed
        if measurement.study in wanted and measurement.jobs[0][0] != 56
    ]
    results = Results(tmp_path / "rows.jsonl", {})
    done = profile(todo, driver_called("mig", 0, A30), results, out)
    assert (done.measured, done.left, done.faults) == (len(todo), 0, ())
    assert seen.read_text().splitlines() == [
        "2g.12gb at 0 mine, 1g.6gb at 3",
        "1g.6gb at 0 mine, 1g.6gb at 3",
        "1g.6gb at 0 mine, 1g.6gb at 3",
    ]
    assert fake.layout() == ["1g.6gb at 3"]
    rows = results.reconfigurations()
    assert [row["sms"] for row in rows] == [28, 14, 14]
    (entry,) = done.profiles
    assert entry["latency_ms"].keys() == {"1", "4"}
    assert entry["latency_ms"]["4"].keys() == {"14", "28"}
    create_s = [sorted(row[name] for row in rows)[1] for name in ("create_s", "destroy_s")]
    assert entry["overhead"]["create_s"] == pytest.approx(sum(create_s), abs=2e-4)
    assert entry["overhead_parts_s"]["created_s"] == pytest.approx(create_s[0], abs=1e-4)
    assert "create_s measured" in entry["provenance"]
    assert "MIG instances" in entry["provenance"]
    # what was measured counts in a run that has nothing left to do
    again = profile(todo, Mig.find(0), Results(results.path, {}), tmp_path / "again.json")
    assert (again.measured, again.profiles) == (0, done.profiles)
    assert json.loads(out.read_text())["measured"]["driver_version"].endswith("fake")


def test_what_is_in_the_way_is_named_and_left_alone(machine: Machine) -> None:
    fake = machine("A100-40GB")
    fake.foreign(4, "3g.20gb")
    driver = Mig.find(0)
    with driver.open():
        way_out = r"not ours: remove it with `nvidia-smi mig -i 0 -dci -gi \d"
        with (
            pytest.raises(BlockedError, match=rf"no room for 7g.40gb.*3g.20gb at 4 .*{way_out}"),
            driver.share(98),
        ):
            pass
        with driver.share(42):
            assert fake.layout() == ["3g.20gb at 0", "3g.20gb at 4"]
            with (
                pytest.raises(BlockedError, match=r"no room for 3g.20gb.* is there already"),
                driver.share(42),
            ):
                pass
    assert fake.layout() == ["3g.20gb at 4"]


def test_whatever_happens_the_instance_goes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = machine()
    driver = Mig.find(0)
    with pytest.raises(ZeroDivisionError), driver.open(), driver.share(14):
        raise ZeroDivisionError
    assert fake.layout() == []

    def no_process(*_: object) -> None:
        assert fake.layout() == ["2g.12gb at 0"]
        raise BlockingIOError

    monkeypatch.setattr(workers, "ProfileWorkerProcess", no_process)
    todo = [
        measurement
        for measurement in measurements(A30, [LOOKING], [1])
        if measurement.jobs[0][0] == 28
    ]
    with driver.open():
        # kept: where only the garbage collector clears up, the error holds on to the share
        with pytest.raises(BlockingIOError) as kept:
            Pool(driver).workers(todo[:1])
        assert fake.layout() == []
        assert kept.tb is not None


def test_a_process_that_takes_a_moment_to_end_is_waited_for(machine: Machine) -> None:
    fake = machine()
    driver = Mig.find(0)
    with driver.open():
        with driver.share(56):
            fake.hold(0, os.getpid())
            ending = threading.Timer(0.1, fake.release)
            ending.start()
        ending.join()
        assert fake.layout() == []


def test_one_that_stays_is_never_killed_and_the_next_run_clears_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = machine()
    monkeypatch.setattr("migrator.profiling.drivers._END_S", 0.1)
    driver = Mig.find(0)
    said = rf"4g.24gb at 0 .*in use by .*process {os.getpid()}"
    with pytest.raises(GpuError, match=said), driver.open(), driver.share(56):
        fake.hold(0, os.getpid())
    assert fake.layout() == ["4g.24gb at 0"]
    fake.release()
    with Mig.find(0).open():
        assert fake.layout() == []


def test_what_a_killed_run_left_is_removed_by_the_next(machine: Machine) -> None:
    fake = machine()
    fake.foreign(0, "1g.6gb")
    with child("-m", "profiling.killed", "mig", 28, os.environ[MACHINE]) as (run, line):
        assert line == "at work"
        at_work = f"is being changed by process {run.pid}"
        with pytest.raises(GpuError, match=at_work), Mig.find(0).open():
            pass
    assert fake.layout() == ["1g.6gb at 0", "2g.12gb at 2"]
    with Mig.find(0).open():
        assert fake.layout() == ["1g.6gb at 0"]


def test_what_cannot_be_measured_is_refused(machine: Machine) -> None:
    fake = machine()
    with pytest.raises(InputError, match="scenario is of a A100-40GB, GPU 0 is a A30-24GB"):
        driver_called("mig", 0, board("A100-40GB"))
    with pytest.raises(InputError, match="there is no GPU 2"):
        Mig.find(2)
    driver = Mig.find(0)
    with driver.open(), pytest.raises(InputError, match=r"no instance of 60 SMs; .* 14, 28, 56"):
        driver.share(60).__enter__()
    with pytest.raises(InputError, match="nothing runs without instances"):
        driver.whole()
    fake.fault(FaultKind.NO_LIBRARY, None)
    with pytest.raises(
        InputError, match=r"no NVIDIA driver library.*`migrator profiles`"
    ) as raised:
        Mig.find(0)
    assert "emulated" not in str(raised.value)


def test_the_profiler_starts_where_only_torch_and_numpy_are() -> None:
    code = (
        "import sys\n"
        "for name in ('typer', 'pydantic', 'numba', 'pynvml'): sys.modules[name] = None\n"
        "from migrator.profiling.__main__ import main\n"
        "main(['resnet-50', '--board', 'A30-24GB', '--dry-run'])\n"
        "sys.exit(main(['resnet-50', '--driver', 'mig']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "measurements, about" in done.stdout
    assert "`pip install nvidia-ml-py`, or use the packaged profiles" in done.stderr
