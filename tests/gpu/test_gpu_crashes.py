"""Random operations, faults and kills; what is promised after each is in support/gpu_chaos.py.

In processes of their own: forking is cheap there, and no kill can strike the test run.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.amount import amount

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
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize(
    ("world", "board", "operations", "points"),
    [
        ("mig", "A100-40GB", amount(300, 8000), NVML_POINTS),
        ("mig", "A30-24GB", amount(500, 4000), NVML_POINTS),
        ("emulated", "A100-40GB", amount(300, 1200), EMULATED_POINTS),
    ],
)
def test_random_operations_with_faults_and_kills(
    world: str, board: str, operations: int, points: set[str], tmp_path: Path
) -> None:
    counts = campaign(world, tmp_path, "--board", board, "--operations", str(operations))
    assert counts["operations"] >= operations
    assert points <= counts.keys()
    assert counts["kills"] > operations / 50
    assert min(counts["back"], counts["forward"]) > operations / 400
    assert counts["stubborn"] >= operations // 500
    assert counts["long boots"] > operations / 200
    assert counts["fewest creates"] >= 2, "after a reboot nothing could be created"


@pytest.mark.parametrize(
    ("world", "times", "points"),
    [("mig", "twice", NVML_POINTS), ("emulated", "once", EMULATED_POINTS)],
)
def test_one_course_killed_at_every_point_and_its_recovery_too(
    world: str, times: str, points: set[str], tmp_path: Path
) -> None:
    step = str(amount(9, 1))
    counts = campaign(world, tmp_path, "--every-point", times, "--step", step)
    assert points <= counts.keys()
    assert counts["kills"] > (80 if times == "twice" else 40)
    assert min(counts["back"], counts["forward"]) > 10
