"""Whether matrix products come out whole on MPS shares of any number of SMs.

    PYTHONPATH=src python -m benchmarks.gpu.share_products [--sms 16,60,64] [--out FILE]

For every number of SMs a process under MPS multiplies bf16 matrices of the shapes that
transformers and ConvNeXt have, in memory that was filled with NaN before: what a kernel leaves
unwritten is seen. On an H200 (docs/gpu.md) 48, 60 and 96 SMs leave some; 16, 32, 64, 132 none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from migrator.gpu.drivers.mps import PERCENTAGE, MpsDaemon, find_shareable, percentage
from migrator.gpu.drivers.nvidia_smi import device_sms

ROWS = (64, 128, 512, 1024, 3136, 8192, 147456)
SHAPES = (
    (768, 768),
    (3072, 768),
    (768, 3072),
    (512, 128),
    (128, 512),
    (128, 48),
    (1024, 256),
    (20, 768),
    (2304, 768),
    (4096, 1024),
    (1024, 4096),
)
"""Columns out and in."""


def main() -> None:
    """A process per number of SMs, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sms", default="16,32,48,60,64,96,132")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true", help="what a process under MPS does")
    asked = parser.parse_args()
    if asked.worker:
        print(json.dumps(list(unwritten())))
        return
    rows_of = {sms: on_share(asked.gpu, sms) for sms in map(int, asked.sms.split(","))}
    for sms, rows in rows_of.items():
        print(f"{sms:4} SMs: {len(rows)} products not whole {rows[:3] or ''}")
    if asked.out:
        asked.out.write_text(json.dumps(rows_of, indent=1) + "\n", encoding="utf-8")


def on_share(gpu: int, sms: int) -> list[Any]:
    """What a process on so many SMs found."""
    seen = find_shareable(gpu)
    whole = device_sms(seen.visible)
    assert whole is not None, "CUDA does not tell how many SMs there are"
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        daemon = MpsDaemon(Path(folder), seen.visible)
        daemon.start()
        try:
            share = {**daemon.environment, PERCENTAGE: percentage(sms, whole)}
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.gpu.share_products", "--worker"],
                env={**os.environ, **share},
                stdout=subprocess.PIPE,
                check=True,
            )
        finally:
            daemon.quit()
    unwritten_products: list[Any] = json.loads(done.stdout)
    return unwritten_products


def unwritten() -> Iterator[tuple[str, int, int, int, int]]:
    """Products with something that is no number: which, its shape, and how many of them."""
    torch: Any = import_module("torch")

    torch.manual_seed(0)
    for rows in ROWS:
        for out, into in SHAPES:
            inputs = torch.randn(rows, into, device="cuda", dtype=torch.bfloat16)
            weights = torch.randn(out, into, device="cuda", dtype=torch.bfloat16) / into**0.5
            poisoned = torch.full((rows * out + out * into,), float("nan"), device="cuda")
            del poisoned  # its memory is what the products are written to
            said = torch.nn.functional.linear(inputs, weights)
            for name, product in (("forward", said), ("weights", said.t() @ inputs)):
                bad = int((~torch.isfinite(product)).sum())
                if bad:
                    yield name, rows, out, into, bad


if __name__ == "__main__":
    main()
