"""Writes examples.json anew: python tests/golden/remake.py. Look at what moved, and say why."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from migrator.simulation.compare import SimulationJob
from migrator.workload.file import read_scenario

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
KEPT = ("received", "goodput", "wrong", "late", "dropped")


def main() -> None:
    """The same cases again."""
    cases = json.loads((HERE / "examples.json").read_text(encoding="utf-8"))
    for case in cases:
        source = partial(read_scenario, EXAMPLES / case["file"])
        tally = SimulationJob(source, case["policy"], windows=case["windows"]).run().tally
        case["found"] = {name: round(getattr(tally, name), 6) for name in KEPT}
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "examples.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
