"""Random operations, faults and kills; what is promised after each is in support/gpu_chaos.py.

In processes of their own: forking is cheap there, and no kill can strike the test run.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
NVML_POINTS = {
    "at journal",
    "at nvmlDeviceCreateGpuInstanceWithPlacement",
    "at nvmlGpuInstanceCreateComputeInstance",
    "at nvmlComputeInstanceDestroy",
    "at nvmlGpuInstanceDestroy",
}
EMULATED_POINTS = {"at journal", "at virtual board"}


def campaign(world: str, folder: Path, *options: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "support.gpu_chaos", world, str(folder), *options],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, int] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(
    ("world", "board", "operations", "points"),
    [
        ("mig", "A100-40GB", 5000, NVML_POINTS),
        ("mig", "A30-24GB", 5000, NVML_POINTS),
        ("mig", "H200-141GB", 1500, NVML_POINTS),
        ("emulated", "A100-40GB", 500, EMULATED_POINTS),
    ],
)
def test_random_operations_with_faults_and_kills(
    world: str, board: str, operations: int, points: set[str], tmp_path: Path
) -> None:
    told = campaign(world, tmp_path, "--board", board, "--operations", str(operations))
    assert told["operations"] >= operations
    assert points <= told.keys()
    assert told["kills"] > operations / 50
    assert min(told["back"], told["forward"]) > operations / 400
    assert told["stubborn"] >= operations // 500
    assert told["long boots"] > operations / 200
    assert told["fewest creates"] >= 2, "after a reboot nothing could be created"


@pytest.mark.parametrize(
    ("world", "times", "points"),
    [("mig", "twice", NVML_POINTS), ("emulated", "once", EMULATED_POINTS)],
)
def test_one_course_killed_at_every_point_and_its_recovery_too(
    world: str, times: str, points: set[str], tmp_path: Path
) -> None:
    told = campaign(world, tmp_path, "--every-point", times)
    assert points <= told.keys()
    assert told["kills"] > (200 if times == "twice" else 40)
    assert min(told["back"], told["forward"]) > 10
