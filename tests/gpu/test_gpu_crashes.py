"""Random operations, faults and kills; what is promised after each is in support/gpu_chaos.py.

In processes of their own: forking is cheap there, and no kill can strike the test run.
"""

import json
import subprocess
import sys
from pathlib import Path

from support.amount import amount

TESTS = Path(__file__).parent.parent
POINTS = {
    "at journal",
    "at nvmlDeviceCreateGpuInstanceWithPlacement",
    "at nvmlGpuInstanceCreateComputeInstance",
    "at nvmlComputeInstanceDestroy",
    "at nvmlGpuInstanceDestroy",
}


def campaign(folder: Path, *options: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "support.gpu_chaos", str(folder), *options],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def test_random_operations_with_faults_and_kills(tmp_path: Path) -> None:
    operations = amount(100, 4000)
    counts = campaign(tmp_path, "--operations", str(operations))
    assert counts["kills"] > operations / 20
    assert counts["back"] > operations / 40
    assert counts["forward"]
    assert counts["reboots"]


def test_one_course_killed_at_every_point_and_its_recovery_too(tmp_path: Path) -> None:
    counts = campaign(tmp_path, "--every-point", str(amount(14, 1)))
    assert counts.keys() >= POINTS
    assert counts["kills"] > 60
    assert min(counts["back"], counts["forward"]) > 10
