"""The map for the docs: MIGRATOR_DATA=FOLDER python -m benchmarks.map [--quick] [--out DIR].

Runs `migrator reproduce map`, or continues it, and writes map.md, map.json and map.png from its
results. A quick map is called map-quick.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]
RIVALS = ("ekya", "astraea", "paris-reconfiguring", "paris", "equal-mig", "best static split")


def text(figures: Json, name: str) -> str:
    """The page of the docs."""
    settings = figures["settings"]
    quick = " --quick" if settings["quick"] else ""
    generated = settings["generated"]
    traces = f"; generated traces: {', '.join(generated)}" if generated else "; real traces"
    nearest = figures["nearest_to_paper"]
    runs = figures["cells"][0]["runs"]
    lines = [
        "# Where MIGRator pays" + (", the quick map" if quick else ""),
        "",
        f"`MIGRATOR_DATA=FOLDER python -m benchmarks.map{quick} --out docs/results`. "
        f"{len(figures['cells'])} cells of {runs} runs of {settings['windows']} x 200 s"
        f"{traces}; `{settings['policies'][0]}` runs as migrator. How to read it: "
        "[when it pays](../when-it-pays.md).",
        "",
        *_unfinished(runs, settings["runs"]),
        f"![Where MIGRator pays]({name}.png)",
        "",
        "Goodput over received, then migrator's leads with 95% confidence intervals, and in "
        "brackets the lead that the ceiling would have. Nearest to the paper's "
        + ", ".join(f"{100 * lead:+.0f}% over {peer}" for peer, lead in figures["paper"].items())
        + f": load {nearest['load']:g}, gains {nearest['gain']}.",
        "",
        "| load | gain | other | verdict | migrator | ceiling | "
        + " | ".join(f"over {rival}" for rival in RIVALS)
        + " |",
        "|" + "---|" * (6 + len(RIVALS)),
    ]
    return "\n".join([*lines, *map(_row, figures["cells"]), ""])


def _unfinished(runs: int, planned: int) -> list[str]:
    """A sentence if not all runs have been made."""
    if runs == planned:
        return []
    return [
        f"**{runs} of {planned} runs per cell**: the map was drawn before it was finished "
        "(`--draw`), so that intervals are wider. The command above continues it.",
        "",
    ]


def _row(cell: Json) -> str:
    cells = [
        f"{cell['load']:g}",
        cell["gain"],
        _other(cell),
        cell["verdict"],
        f"{100 * cell['goodput']:.1f}%",
        f"{100 * cell['ceiling']:.1f}%",
        *(_lead(cell, rival) for rival in RIVALS),
    ]
    return f"| {' | '.join(cells)} |"


def _other(cell: Json) -> str:
    parts = [
        *([] if cell["traces"] == "Alibaba + Azure" else [cell["traces"]]),
        *([] if cell["length"] == 1 else [f"retraining x {cell['length']:g}"]),
        *([] if cell["tenants"] == 2 else [f"{cell['tenants']} tenants"]),
        *([] if cell["workers"] == "prepared" else ["cold workers"]),
    ]
    return ", ".join(parts)


def _lead(cell: Json, rival: str) -> str:
    lead, most = cell["leads"][rival], cell["most"][rival]
    if lead is None:
        return "-"
    width = "" if lead["half_width"] is None else f" ± {100 * lead['half_width']:.1f}"
    return f"{100 * lead['mean']:+.1f}%{width} ({100 * most:+.1f}%)"


def main() -> None:
    """Run the map and write its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draw", action="store_true", help="only draw what has been run")
    parser.add_argument("--seeds", type=int, help="runs per cell")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--work", type=Path, default=Path("out"), help="where results are kept")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    name = "map-quick" if asked.quick else "map"
    command = [sys.executable, "-m", "migrator", "reproduce", "map", "--json"]
    command += ["--out", str(asked.work / f"{name}.html")]
    command += ["--quick"] if asked.quick else []
    command += ["--draw"] if asked.draw else []
    for option in ("seeds", "processes"):
        value = getattr(asked, option)
        command += [] if value is None else [f"--{option}", str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    parsed_json = json.loads(done.stdout.splitlines()[-1])
    shutil.copyfile(parsed_json.pop("picture"), asked.out / f"{name}.png")
    parsed_json.pop("page")
    (asked.out / f"{name}.json").write_text(
        json.dumps(parsed_json, indent=1) + "\n", encoding="utf-8"
    )
    (asked.out / f"{name}.md").write_text(text(parsed_json, name), encoding="utf-8")


if __name__ == "__main__":
    main()
