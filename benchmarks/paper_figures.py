"""Every figure and table of the paper beside ours, for the docs.

    MIGRATOR_DATA=FOLDER python -m benchmarks.paper_figures --work FOLDER --out docs/results

Runs `migrator reproduce all` and writes paper_figures.json and paper-figures.md,
so that no figure in the docs is typed in.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from migrator.core.catalogue import board, configurations
from migrator.workload.workloads import workloads

Json = dict[str, Any]
PEERS = ("ekya", "astraea", "paris-reconfiguring")


def text(figures: Json) -> str:
    """The page, from what `migrator reproduce all --json` printed."""
    of = figures["experiments"]
    rows = [
        ("Table 1, prior works", "which of five systems do what", "[what each gets](../peers.md)"),
        ("Figure 1, MIG configurations", "those of an A100", _configurations()),
        ("Figure 2, one model's GPCs", *_allocation_table(of["allocation-table"])),
        ("Figure 3, the best split of every second", *_best_allocation(of["best-allocation"])),
        ("Figure 4, two retrainings", *_retraining_split(of["retraining-split"])),
        ("Table 2, symbols", "of the ILP", "[the same problem as a file](../problem-format.md)"),
        ("Figure 5, overhead of a reconfiguration", *_overhead(of["overhead"])),
        (
            "Figure 6, example of pre-initialization",
            "two instances prepared early",
            "[the same example, planned and drawn](../preinitialization.md)",
        ),
        ("Tables 3 and 4, models and workloads", *_workloads()),
        ("Figure 7, goodput", *_goodput(of)),
        ("Figure 8a, SLO attainment", *_measure(of, "slo_attainment")),
        ("Figure 8b, accuracy", *_measure(of, "accuracy")),
        ("in the text, pre-initialization", *_hidden(of["overhead"])),
        ("Figure 9, batch 4", *_batch_4(of["batch-4"])),
        ("Figure 10, slot length", *_slots(of["slot-length"]["migrator-paper"])),
    ]
    return "\n".join(
        [
            "# The paper's figures and tables, ours beside them",
            "",
            "`migrator reproduce all`, whose page has every figure drawn. "
            f"Traces: {figures['traces']}. ± is a 95% confidence interval over the workloads. An "
            "A100 there, an H200 here, simulated request by request with measured profiles. "
            "Workloads have the packaged accuracies and short retrainings here, two windows and "
            "one seed; [the evaluation](headline.md) has longer runs with retrainings as long as "
            "the whole data sets need.",
            "",
            "| in the paper | it says | ours |",
            "|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
        ]
    )


def _configurations() -> str:
    counts = {name: len(configurations(board(name))) for name in ("A100-40GB", "H200-141GB")}
    return ", ".join(f"{count} on an {name}" for name, count in counts.items()) + (
        ", computed from the driver's placements (`migrator boards NAME`)"
    )


def _allocation_table(of: Json) -> tuple[str, str]:
    slo, accuracy = (
        mean(a - b for a, b in zip(of[key]["6-1"], of[key]["3-4"], strict=True))
        for key in ("slo_attainment", "accuracy")
    )
    return (
        "6-1 against 3-4: SLO attainment +18%, accuracy -8%",
        f"{100 * slo:+.1f} and {100 * accuracy:+.1f} points, at load {of['load']:g} (the paper's "
        "is not stated)",
    )


def _best_allocation(of: Json) -> tuple[str, str]:
    used = [split for split, seconds in of["seconds_best"].items() if seconds]
    held = max(of["served_share_held"].values())
    every_second = of["served_share_best_each_second"]
    return (
        "every split from 6-1 to 1-6 is best in some second",
        f"{len(used)} of {len(of['seconds_best'])} splits ({', '.join(used)}); the best one, held, "
        f"serves {held:.1%}, the best of every second {every_second:.1%}",
    )


def _retraining_split(of: Json) -> tuple[str, str]:
    best = (f"{key.replace('_', ' ')}: {', '.join(values['best'])}" for key, values in of.items())
    return "no split is best in every window", f"best in windows 1 to 4, {'; '.join(best)}"


def _overhead(of: Json) -> tuple[str, str]:
    models = ("convnext-b", "resnet-50", "mobilenet-v2")
    parts = {model: of["parts"][model] for model in models}
    cold = (
        f"{name} {part['create_s'] + part['start_s'] + part['load_s']:.1f} s cold, "
        f"{part['create_s'] + part['load_s']:.1f} s with a prepared worker"
        for name, part in parts.items()
    )
    return "of ConvNeXt, ResNet50 and MobileNet, drawn without numbers", "; ".join(cold)


def _workloads() -> tuple[str, str]:
    models = dict.fromkeys(model for workload in workloads().values() for model in workload.models)
    return (
        "six models, 16 pairs of them",
        f"the same: {', '.join(models)}; {len(workloads())} workloads (`migrator example w01` to "
        "`w16`)",
    )


def _goodput(of: Json) -> tuple[str, str]:
    plain, high = of["goodput"], of["high-load"]
    ours = "; ".join(
        f"{title}: {_gains(gains)}"
        for title, gains in (
            ("load 0.6", plain),
            (f"load {high['load']:g} with gains of published weights", high),
        )
    )
    return "+17% over Ekya, +21% over Astraea, +20% over PARIS", ours


def _gains(of: Json) -> str:
    return ", ".join(f"{_gain(of, peer)} over {peer}" for peer in PEERS)


def _gain(of: Json, peer: str) -> str:
    """A gain with its interval."""
    width = (of.get("half_widths") or {}).get(peer)
    return f"{of['gains'][peer]:+.1%}" + ("" if width is None else f" ± {100 * width:.1f}")


def _measure(of: Json, key: str) -> tuple[str, str]:
    gains = of["slo-accuracy"][key]
    sentence = ", ".join(f"{gains['paper_gains'][peer]} over {peer}" for peer in PEERS)
    return sentence, ", ".join(f"{gains['gains'][peer]:+.1%} over {peer}" for peer in PEERS)


def _hidden(of: Json) -> tuple[str, str]:
    saved = of["prepared_saves"].values()
    return (
        f"reduces the overhead by {of['paper_reduction']:.0%}",
        f"prepared workers save {min(saved):.0%} to {max(saved):.0%}; the pass over a plan hides "
        f"{of['cold']['hidden_share']:.0%} of what is left with cold workers, "
        f"{of['prepared']['hidden_share']:.0%} with prepared ones",
    )


def _batch_4(of: Json) -> tuple[str, str]:
    workload_rows = {name: row for name, row in of["workloads"].items() if name != "average"}
    won = ", ".join(
        f"{sum(row['migrator'] > row[peer] for row in workload_rows.values())} of "
        f"{len(workload_rows)} against {peer}"
        for peer in PEERS
    )
    return "ahead of all three on every workload", f"{_gains(of)}; ahead on {won}"


def _slots(of: Json) -> tuple[str, str]:
    sentence = ", ".join(f"{slot} s {values['goodput']:.1%}" for slot, values in of.items())
    return "0.5 s best, 1 s close, 10 s clearly worse", sentence


def main() -> None:
    """Run the experiments, and write both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--work", type=Path, default=Path("out"), help="folder for the page with the charts")
    add("--processes", help="runs in parallel; default: one per core")
    add("--out", type=Path, default=Path("out"), help="folder")
    options = parser.parse_args()
    command = [sys.executable, "-m", "migrator", "reproduce", "all", "--json"]
    command += ["--out", str(options.work / "reproduce.html")]
    command += ["--processes", options.processes] if options.processes else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    del figures["page"]  # a path of this machine
    for name, written in (
        ("paper_figures.json", json.dumps(figures, indent=1) + "\n"),
        ("paper-figures.md", text(figures)),
    ):
        (options.out / name).write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
