"""An example window to start from: two tenants whose bursts take turns on one A100."""

from __future__ import annotations

import json
import math
import random
import textwrap
from typing import Any

SLOTS = 200

_HEAD = """\
# One window to plan: two tenants whose bursts take turns on one GPU.
#
#   migrator plan window.yaml --figure plan.html
#
# JSON with the same keys is read as well. docs/problem-format.md describes every key.
"""
_COMMENTS = {
    "gpu": "a board that `migrator boards` lists",
    "slot_s": "length of a slot in seconds",
    "slots": "number of slots, planned together",
    "charge": "paper: a tenant pays for every change of its sizes; survivors: only new instances",
    "received": "requests per slot, as many numbers as slots",
    "capability": "requests per slot of one instance, by its GPCs; others are never used",
    "accuracy_pre": "before the retraining",
    "accuracy_post": "after it",
    "retraining_slots": "slots that a retraining takes, by the instance's GPCs; null: none",
    "overhead_s": "seconds until a new instance serves",
    "min_gpcs": "in every slot it holds an instance of this size or larger",
    "initial": "instances held before the first slot; null: not known, and slot 0 costs nothing",
}
_WIDTH = 96


def example_problem() -> dict[str, object]:
    """A problem file, version 1, as a value; the same on every machine."""
    return {
        "version": 1,
        "gpu": "A100-40GB",
        "slot_s": 1.0,
        "slots": SLOTS,
        "charge": "paper",
        "tenants": [
            {
                "name": "bert",
                "received": _arrivals(seed=1, mean=140, swing=0.6, period_s=110, phase=0.0),
                # no "1": on one GPC it misses its deadline, so it is never served there
                "capability": {"2": 110, "3": 168, "4": 216, "7": 340},
                "accuracy_pre": 0.61,
                "accuracy_post": 0.85,
                "retraining_slots": {"1": 150, "2": 80, "3": 56, "4": 45},
                "overhead_s": 2.0,
                "min_gpcs": 2,
            },
            {
                "name": "resnet50",
                "received": _arrivals(seed=2, mean=210, swing=0.65, period_s=110, phase=math.pi),
                "capability": {"1": 95, "2": 180, "3": 250, "4": 320, "7": 500},
                "accuracy_pre": 0.70,
                "accuracy_post": 0.82,
                "retraining_slots": {"1": 120, "2": 64, "3": 45, "4": 36},
                "overhead_s": 1.5,
                "min_gpcs": 1,
            },
        ],
        "initial": None,
    }


def _arrivals(seed: int, mean: float, swing: float, period_s: float, phase: float) -> list[int]:
    """A slow wave with noise and two bursts."""
    noise = random.Random(seed)  # its sequence is fixed by the language, so the example is too
    bursts = {round(noise.uniform(0.1, 0.9) * SLOTS): noise.uniform(0.3, 0.6) for _ in range(2)}
    arrivals = []
    for t in range(SLOTS):
        rate = 1 + swing * math.sin(2 * math.pi * t / period_s + phase)
        rate += sum(height for at, height in bursts.items() if at <= t < at + 12)
        arrivals.append(max(0, round(mean * rate * noise.gauss(1, 0.08))))
    return arrivals


def example_text() -> str:
    """The problem as YAML with a comment on every key."""
    problem: dict[str, Any] = example_problem()
    lines = [_HEAD.rstrip()]
    for key, value in problem.items():
        if key != "tenants":
            lines += _entry(key, value, "", explained=True)
            continue
        lines.append("tenants:")
        for at, tenant in enumerate(value):
            entries = [x for k, v in tenant.items() for x in _entry(k, v, "    ", explained=not at)]
            lines += ["  - " + entries[0].strip(), *entries[1:]]
    return "\n".join(lines) + "\n"


def _entry(key: str, value: object, indent: str, *, explained: bool) -> list[str]:
    """A key with its value, under its comment."""
    about = _COMMENTS.get(key) if explained else None
    text = value if isinstance(value, str) else json.dumps(value)
    # keys of objects are sizes, which need no quotes in YAML
    shown = f"{indent}{key}: {text if isinstance(value, str) else text.replace(chr(34), '')}"
    wrapped = textwrap.wrap(shown, _WIDTH, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
    return [*([f"{indent}# {about}"] if about else []), *wrapped]
