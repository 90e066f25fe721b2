"""The packaged profiles from measured ones: `python to_profiles.py FILE... [--write]`.

FILEs are what `migrator profile` wrote. Printed, or with `--write` put into the package; what only
people read (percentiles, parts of a start) stays behind in the FILEs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGED = Path(__file__).parents[2] / "src" / "migrator" / "core" / "profiles.json"
KEYS = (
    *("model", "board", "latency_ms", "training_ratio", "interference", "contention"),
    *("overhead", "provenance", "memory_mib", "training_memory_mib"),
    *("worker_held_mib", "retraining_held_mib", "estimate_held_mib"),
)
ABOUT = (
    "What MIGRator knows of models before it has measured them on your board. Made by "
    "benchmarks/gpu/to_profiles.py from a profile file of `migrator profile`; docs/profiles.md "
    "says how every figure is measured and how it follows. A MIG instance has a part of the "
    "memory bandwidth too, an MPS share alone has all of it: times of small instances are "
    "therefore rather too good."
)
EARLIER = {
    "interference of the packaged profile": "interference of docs/results/h200-interference.json",
    "contention of the packaged profile": "contention of docs/results/h200-interference.json",
    "start_s and load_s of the packaged profile": "start_s and load_s midpoints of what was "
    "measured of cold starts before",
}
"""What a profile file takes from the package, and where the package had it from."""


def packaged(files: Sequence[dict[str, Any]]) -> str:
    """The text of profiles.json, a line per profile."""
    entries = [_entry(profile) for file in files for profile in file["profiles"]]
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    return f'{{\n "version": 1,\n "about": {json.dumps(ABOUT)},\n "profiles": [\n{lines}\n ]\n}}\n'


def _entry(measured: dict[str, Any]) -> dict[str, Any]:
    entry = {key: measured[key] for key in KEYS if key in measured}
    for earlier, source in EARLIER.items():
        entry["provenance"] = entry["provenance"].replace(earlier, source)
    return entry


def main() -> None:
    """Print the profiles, or put them into the package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="into the package")
    arguments = parser.parse_args()
    text = packaged([json.loads(file.read_text(encoding="utf-8")) for file in arguments.files])
    if arguments.write:
        PACKAGED.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
