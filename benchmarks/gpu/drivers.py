"""What the drivers do on a real GPU: `python -m benchmarks.gpu.drivers --out drivers.json`.

Reads board, profiles and placements through NVML and holds them to the packaged catalogue; then
shares the GPU out with MPS: for every MIG size a process that tells the SMs it sees and how fast
it multiplies large bf16 matrices, one at a time, then 3g and 4g side by side. Everything is
destroyed at the end, also after a failure or a signal; what is left behind is a fault.

MIG mode, clocks, power, compute mode and persistence are only read. Needs Python, pynvml, torch
with CUDA and the sources beside this folder, and less than a minute. `--dry-run` needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from benchmarks.gpu.drivers_judged import differences, pair, sizes
from benchmarks.gpu.drivers_shares import PRODUCT_S, Json, measure, prepared
from migrator.core import catalogue
from migrator.core.catalogue import Board
from migrator.core.errors import GpuError, InputError, MigratorError
from migrator.gpu.drivers import mig
from migrator.gpu.drivers.mps import PIPES, MpsDriver, percentage, safe_sms, share_sms
from migrator.io.processes import command_words, process_environment, process_ids

MODES = ("mig.mode.current", "compute_mode", "persistence_mode", "power.limit", "clocks.max.sm")
WORKER = Path(__file__).with_name("drivers_worker.py")


class StoppedError(MigratorError):
    """A signal came, or the time is up."""


def read_mig(index: int) -> Json:
    """The board through NVML, MIG on or off, and in what the catalogue differs."""
    try:
        with mig.open_mig(index) as driver:
            gpu = driver.gpu()
    except (GpuError, InputError) as error:
        return {"fault": str(error)}
    packaged = catalogue.boards().get(gpu.board.name)
    return {
        "gpu": gpu.name,
        "driver_version": gpu.driver_version,
        "mig_on": gpu.divides,
        "board": asdict(gpu.board),
        "differences": ["no such board is packaged"]
        if packaged is None
        else differences(gpu.board, packaged),
    }


def modes(index: int) -> dict[str, str]:
    """What must be the same afterwards."""
    question = ["nvidia-smi", f"--query-gpu={','.join(MODES)}", "--format=csv,noheader"]
    done = subprocess.run(
        [*question, "-i", str(index)], capture_output=True, text=True, check=True, timeout=30
    )
    answers = (name.strip() for name in done.stdout.split(","))
    return dict(zip(MODES, answers, strict=True))


def mps_processes(pipes: Path) -> list[int]:
    """The processes of the MPS daemon with that folder of pipes."""
    return sorted(
        pid
        for pid in process_ids()
        if any(word.startswith("nvidia-cuda-mps") for word in command_words(pid))
        and process_environment(pid).get(PIPES) == str(pipes)
    )


@contextmanager
def cleaned(driver: MpsDriver) -> Iterator[None]:
    """Nothing is left of it, whatever happens; a second signal does not disturb that."""
    try:
        yield
    finally:
        stops = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)
        before = [signal.signal(number, signal.SIG_IGN) for number in stops]
        for instance in driver.instances():
            with suppress(MigratorError):
                driver.destroy(instance)
        driver.daemon.quit()
        for number, handler in zip(stops, before, strict=True):
            signal.signal(number, handler)


def run(index: int, worker: Path = WORKER) -> Json:
    """Everything, and what it leaves behind."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        driver = MpsDriver.open(index, Path(folder))
        limited = MpsDriver.open(index, Path(folder), limit_memory=True)
        before = modes(index)
        result: Json = {"modes": before, "mps": {"alone": [], "table": [], "faults": []}}
        count = len(sizes(driver.gpu().board)) + len(pair(driver.gpu().board)) + 1
        with cleaned(driver), prepared(count, worker) as workers:
            try:
                result["mig"] = read_mig(index)
                measure(driver, limited, workers, result["mps"])
            except StoppedError as error:
                result["mps"]["faults"].append(str(error))
        left = [f"process {pid}" for pid in mps_processes(driver.daemon.pipes)]
        left += [str(path) for path in (driver.daemon.pipes, driver.daemon.logs) if path.exists()]
    result["left_behind"] = left
    result["modes_changed"] = modes(index) != before
    result["took_s"] = round(time.monotonic() - began_s, 1)
    return result


def faults_of(result: Json) -> list[str]:
    """Everything that is not as it should be."""
    faults = list(result["mps"]["faults"])
    if "fault" in result.get("mig", ()):
        faults.append(result["mig"]["fault"])
    faults += [f"{line} is left behind" for line in result["left_behind"]]
    return faults + (["a mode of the GPU was changed"] if result["modes_changed"] else [])


def dry_run(board: Board) -> Iterator[str]:
    """What would be done on such a board."""
    yield f"read {board.name} through NVML and compare {len(board.profiles)} profiles"
    for profile in sizes(board):
        sms = safe_sms(board.name, share_sms(board, profile, board.sms), board.sms)
        yield f"share {profile.name}: {sms} SMs, {percentage(sms, board.sms)}%, {PRODUCT_S} s"
    yield f"side by side: {', '.join(map(str, pair(board)))}"
    yield "destroy all, look for what is left of the daemon"


def _stop(number: int, _frame: FrameType | None) -> None:
    raise StoppedError(f"stopped by {signal.Signals(number).name} before everything was measured")


def main() -> int:
    """Run, print, write; 1 where something is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, help="the result as JSON")
    add("--gpu", type=int, default=0, help="the GPU's number")
    add("--limit-s", type=int, default=55, help="stop and clean up after so long")
    add("--dry-run", action="store_true", help="say what would be done")
    add("--board", default="H200-141GB", help="for --dry-run")
    add("--worker", type=Path, default=WORKER, help="another program in its place, for tests")
    arguments = parser.parse_args()
    if arguments.dry_run:
        print("\n".join(dry_run(catalogue.board(arguments.board))))
        return 0
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _stop)
    signal.alarm(arguments.limit_s)
    try:
        result = run(arguments.gpu, arguments.worker)
    except MigratorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 3
    faults = faults_of(result)
    result["faults"] = faults
    different = result.get("mig", {}).get("differences", ())
    print("\n".join([*result["mps"]["table"], *different, *faults]))
    print(f"{'limits hold' if not faults else f'{len(faults)} faults'}; {result['took_s']} s")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
