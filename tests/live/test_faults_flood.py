"""A flood over HTTP: ten times what the daemon can do, as `benchmarks/flood.py` measures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support import PYTHONPATH

ROOT = Path(__file__).parents[2]
MORE_MIB = 24.0
"""From the end of the first flood to that of the last: some requests are remembered for labels."""


ATTEMPTS = 3
"""A busy machine may be too slow for the clients themselves, and goodput falls with them."""


def phases(out: Path) -> list[dict[str, float]]:
    """What a batch takes and the objective are long, so that a busy machine keeps up as well."""
    command = [sys.executable, "-m", "benchmarks.flood", "--out", str(out)]
    command += ["--seconds", "4", "--rounds", "2", "--batch", "4", "--batch-ms", "600"]
    command += ["--model", "support.means_model:Means"]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    measured: list[dict[str, float]] = json.loads(out.read_text(encoding="utf-8"))["phases"]
    return measured


def test_goodput_stays_and_memory_does_not_grow(tmp_path: Path) -> None:
    for _ in range(ATTEMPTS):
        measured = phases(tmp_path / "flood.json")
        calm, flooded = measured[0::2], measured[1::2]
        assert all(phase["offered_rps"] == 10 * calm[0]["offered_rps"] for phase in flooded)
        assert all(phase["refused"] > phase["offered_rps"] for phase in flooded), "it was no flood"
        assert flooded[-1]["rss_mib"] - flooded[0]["rss_mib"] < MORE_MIB
        before, during = (sum(phase["goodput_rps"] for phase in part) for part in (calm, flooded))
        if during >= 0.9 * before:
            return
    raise AssertionError(measured)
