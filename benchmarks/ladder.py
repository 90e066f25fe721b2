"""The ladder's figures for the docs: python benchmarks/ladder.py FIGURES.json [--out DIR].

FIGURES.json is what `migrator reproduce ladder --json` printed; ladder.md is made from it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def text(found: Json) -> str:
    """The page."""
    ladder = found["experiments"]["ladder"]
    names = list(next(iter(ladder["goodput"].values())))
    lines = [
        "# What the limits of a real GPU cost the peers",
        "",
        "`migrator reproduce ladder --json > FIGURES.json` (`--workloads`, `--windows` for fewer), "
        "then `python benchmarks/ladder.py FIGURES.json --out docs/results`. "
        f"Workloads: {', '.join(ladder['workloads'])}; traces: {found['traces']}; "
        f"seeds: {', '.join(map(str, found['seeds']))}. Mean goodput of received, migrator's gain "
        "in brackets; every line has one limit more than the line before ([peers](../peers.md)).",
        "",
        f"| limits | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for step, goodputs in ladder["goodput"].items():
        gains = ladder["gains"][step]
        cells = [
            f"{value:.1%}" + (f" ({gains[name]:+.1%})" if name in gains else "")
            for name, value in goodputs.items()
        ]
        words = f"**{step} (default)**" if step == ladder["default"] else step
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("figures", type=Path, help="what `migrator reproduce ladder` printed")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    found = json.loads(given.figures.read_text(encoding="utf-8"))
    (given.out / "ladder.md").write_text(text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
