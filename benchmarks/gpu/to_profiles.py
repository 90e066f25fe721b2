"""The packaged profiles from what was measured: python benchmarks/gpu/to_profiles.py [--write].

Reads docs/results/h200-interference.json (benchmarks/gpu/interference.py writes it) and makes
the entries of src/migrator/core/profiles.json. How each figure follows is said there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "docs" / "results" / "h200-interference.json"
PROFILES = ROOT / "src" / "migrator" / "core" / "profiles.json"
BOARD, BOARD_SMS, INTERFERING_SMS = "H200-141GB", 132, 64
MODELS = ("mobilenet-v2", "resnet-50", "inception-v3", "convnext-b", "vit-b-16", "bert-base")
SMS, BATCHES = (16, 32, 60, 64, 132), (1, 4, 16)
LOAD_S = {"mobilenet-v2": 3.3, "vit-b-16": 0.66}
"""Measured; 1.5 s is assumed for the others."""

Json = dict[str, Any]


def entry(found: Json, model: str) -> Json:
    """One profile."""
    latency_ms = {
        str(batch): {str(sms): _alone(found, "inference", model, batch, sms) for sms in SMS}
        for batch in BATCHES
    }
    ratios = [
        _alone(found, "training", model, 32, sms) / 32 / (latency_ms["16"][str(sms)] / 16)
        for sms in SMS
    ]
    return {
        "model": model,
        "board": BOARD,
        "latency_ms": latency_ms,
        "training_ratio": round(mean(ratios), 2),
        "interference": round(mean(_sensitivities(found, model)), 3),
        "contention": round(_contention(found, latency_ms), 2),
        "overhead": {"create_s": 0.53, "start_s": 9.75, "load_s": LOAD_S.get(model, 1.5)},
        "provenance": _provenance(found, model),
    }


def _provenance(found: Json, model: str) -> str:
    load = "measured" if model in LOAD_S else "assumed"
    tokens = "; 128 tokens" if model == "bert-base" else ""
    return (
        f"{found['board']}, driver {found['driver']}, torch {found['torch']}, "
        f"{found['measured']}; MPS shares, CUDA graphs, fp16, weights at random{tokens}; "
        f"create_s published, start_s measured, load_s {load}"
    )


def _alone(found: Json, task: str, model: str, batch: int, sms: int) -> float:
    times = [
        each["median_ms"]
        for each in found["alone"]
        if (each["partition"], each["task"], each["model"], each["batch"], each["sms"])
        == ("mps", task, model, batch, sms)
        and each["study"] != "training-eager"
    ]
    return round(float(times[0]), 3)


def _together(found: Json, partition: str) -> Iterator[tuple[Json, list[Json]]]:
    """Every serving job that ran beside others, and these."""
    for phase in found["together"]:
        if phase["partition"] == partition:
            for job in phase["jobs"]:
                if job["task"] == "inference":
                    yield job, phase["jobs"]


def _sensitivities(found: Json, model: str) -> Iterator[float]:
    """Slower by what part, had the others held `INTERFERING_SMS`; whole-GPU shares left out."""
    for job, jobs in _together(found, "mps"):
        if job["model"] == model and job["sms"] < BOARD_SMS:
            others = sum(each["sms"] * each["processes"] for each in jobs) - job["sms"]
            yield (job["slowdown"] - 1) * INTERFERING_SMS / others


def _contention(found: Json, latency_ms: Json) -> float:
    """Slower by what part beside a busy neighbour, which adds the same time to any batch."""
    added_ms = mean(
        each["median_ms"] - each["alone_ms"] for each, _ in _together(found, "time-slices")
    )
    return float(mean(added_ms / latency_ms[batch][str(BOARD_SMS)] for batch in ("1", "4")))


def main() -> None:
    """Print the profiles, or put them into the package."""
    packaged = json.loads(PROFILES.read_text(encoding="utf-8"))
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    entries = [entry(found, model) for model in MODELS]
    lines = ",\n".join(f"  {json.dumps(each)}" for each in entries)
    text = (
        f'{{\n "version": {packaged["version"]},\n "about": {json.dumps(packaged["about"])},\n'
        f' "profiles": [\n{lines}\n ]\n}}\n'
    )
    if "--write" in sys.argv[1:]:
        PROFILES.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
