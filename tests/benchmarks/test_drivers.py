"""benchmarks/gpu/drivers.py: what it judges, and that nothing is left of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_nvml.library import installed
from support.nvidia_programs import NvidiaPrograms

from benchmarks.gpu import drivers, drivers_judged
from benchmarks.gpu.drivers_judged import Product
from migrator.core.catalogue import Board, Place, board

ROOT = Path(__file__).parents[2]
SCRIPT = (sys.executable, "-m", "benchmarks.gpu.drivers")
H200 = board("H200-141GB")

WORKER = """
import json, os, sys
task = json.loads(sys.stdin.readline() or sys.exit())
os.environ.update(task["environment"])
sms = int(132 * float(os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) / 100 + 1e-9)
print(json.dumps({"pid": os.getpid(), "sms": sms}), flush=True)
sys.stdin.readline()
limited = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in os.environ
allocated = [size < 16 for size in task["allocate_gib"]] if limited else []
result = {"tflops": 6.0 * sms * FACTOR, "clock_mhz": 1980.0, "allocated": allocated}
print(json.dumps(result), flush=True)
"""
HANGING = 'import sys, time; sys.stdin.readline(); print(\'{"pid": 1, "sms": 1}\', flush=True); '


@pytest.fixture(autouse=True)
def _fake_nvml(tmp_path: Path) -> Iterator[None]:
    with installed(tmp_path / "fake", ["H200-141GB"]):
        yield


def worker(folder: Path, factor: str = "1") -> Path:
    path = folder / "worker.py"
    path.write_text(WORKER.replace("FACTOR", factor))
    return path


def test_a_board_like_its_entry_differs_in_nothing() -> None:
    assert drivers_judged.differences(H200, H200) == []


def test_every_difference_of_a_board_is_listed() -> None:
    first, second, *others = H200.profiles
    changed = replace(first, sms=18, starts=(0, 1), profile_id=None)
    read = Board("H201", 7, 8, (changed, replace(second, name="1g.18gb+all"), *others))
    assert drivers_judged.differences(read, H200) == [
        "1g.18gb+all: not packaged",
        "1g.18gb+me: packaged, not read",
        "1g.18gb: profile_id read None, packaged 19",
        "1g.18gb: sms read 18, packaged 16",
        "1g.18gb: starts read (0, 1), packaged (0, 1, 2, 3, 4, 5, 6)",
        "name: read H201, packaged H200-141GB",
    ]


def test_what_is_measured_follows_from_the_board() -> None:
    names = [size.name for size in drivers_judged.sizes(H200)]
    assert " ".join(names) == "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"
    assert drivers_judged.pair(H200) == [Place(0, "4g.71gb"), Place(4, "3g.71gb")]
    assert drivers_judged.pair(board("A30-24GB")) == [Place(0, "2g.12gb"), Place(2, "2g.12gb")]


def test_violated_limits_are_listed() -> None:
    def product(profile: str, sms: int, tflops: float, mhz: float | None = None) -> Product:
        return Product(profile, sms, "", sms, tflops, mhz)

    small, half, whole = (
        product("1g", 16, 100.0),
        product("4g", 64, 400.0),
        product("7g", 132, 800.0),
    )
    assert drivers_judged.faults([small, half, whole], [half]) == []
    assert drivers_judged.faults([product("1g", 16, 110.0), whole], []) == [
        "1g: 110.0 TFLOP/s, its part would be 97.0"
    ]
    # at a higher clock the same part is more
    cool, hot = product("1g", 16, 110.0, 1980.0), product("7g", 132, 800.0, 1700.0)
    assert drivers_judged.faults([cool, hot], []) == []
    assert drivers_judged.faults([half, product("7g", 132, 390.0)], []) == [
        "7g: 390.0 TFLOP/s, no more than 4g has",
        "4g: 400.0 TFLOP/s, its part would be 189.1",
    ]
    assert drivers_judged.faults([small, whole], [product("3g", 60, 500.0)]) == [
        "3g: 500.0 TFLOP/s, its part would be 363.6"
    ]
    seen_more = Product("1g", 16, "", 132, 100.0, None)
    assert drivers_judged.faults([seen_more, whole], []) == ["1g: sees 132 SMs, not 16"]
    assert len(list(drivers_judged.table([small, whole]))) == 3


def test_all_of_it_leaves_nothing(programs: NvidiaPrograms, tmp_path: Path) -> None:
    result = drivers.run(0, worker(tmp_path))
    assert drivers.faults_of(result) == []
    assert [row["sms_seen"] for row in result["mps"]["alone"]] == [16, 32, 32, 64, 64, 132]
    assert [row["beside"] for row in result["mps"]["side_by_side"]] == ["3g.71gb", "4g.71gb"]
    assert result["mps"]["allocated_of_limit"] == {0.5: True, 1.5: False}
    assert result["mig"]["differences"] == []
    assert result["left_behind"] == []
    assert json.loads(json.dumps(result))["mps"]["table"] == result["mps"]["table"]
    assert sum(line == "quit -t 5" for line in programs.log()) == 8


@pytest.mark.usefixtures("programs")
def test_a_worker_that_dies_is_a_fault_and_the_rest_is_measured(tmp_path: Path) -> None:
    result = drivers.run(0, worker(tmp_path, "(sms != 132 or sys.exit(7))"))
    faults = drivers.faults_of(result)
    assert [fault.partition(":")[0] for fault in faults] == ["7g.141gb"]
    assert len(result["mps"]["alone"]) == 5
    assert result["left_behind"] == []


def test_a_signal_ends_it_without_a_trace(programs: NvidiaPrograms, tmp_path: Path) -> None:
    program, out = tmp_path / "worker.py", tmp_path / "out.json"
    program.write_text(HANGING + "sys.stdin.readline(); time.sleep(0.5)")
    with subprocess.Popen(
        [*SCRIPT, "--worker", str(program), "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        while not any(line.startswith("get_server_list") for line in programs.log()):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 1
    assert "quit -t 5" in programs.log()
    result = json.loads(out.read_text())
    assert "stopped by SIGTERM before everything was measured" in result["faults"]
    assert result["left_behind"] == []
