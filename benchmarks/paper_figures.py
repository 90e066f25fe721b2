"""Every figure and table of the paper beside ours, for the docs:
python -m benchmarks.paper_figures FIGURES.json [--map docs/results/map.json] [--out DIR].

FIGURES.json is what `migrator reproduce all --json` printed; reasons for differences are taken from
the map's results. paper-figures.md is made from both, so that no figure in the docs is typed in.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from migrator.core.catalogue import board, configurations
from migrator.workload.workloads import workloads

Json = dict[str, Any]
PEERS = ("ekya", "astraea", "paris-reconfiguring")
PARIS = PEERS[-1]
WANTED = 0.20
"""The lead over PARIS that the paper reports."""


def text(figures: Json, drawn: Json) -> str:
    """The page, from the figures of the evaluation and of the map."""
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
            "`python -m benchmarks.paper_figures FIGURES.json --map docs/results/map.json --out "
            "docs/results`, where FIGURES.json is what `migrator reproduce all --json` printed. "
            f"Traces: {figures['traces']}. The page that `reproduce` writes has every figure "
            "drawn. ± is a 95% confidence interval over the workloads. An A100 there, an H200 "
            "here, simulated request by request with measured profiles.",
            "",
            "| in the paper | it says | ours |",
            "|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            "## Why the leads differ",
            "",
            *(f"- {reason}" for reason in reasons(of, drawn)),
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
    return ", ".join(f"{gain(of, peer)} over {peer}" for peer in PEERS)


def gain(of: Json, peer: str) -> str:
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


def reasons(of: Json, drawn: Json) -> Iterable[str]:
    """Why leads are not the paper's, from the map's cells."""
    cells = drawn["cells"]
    base = [cell for cell in cells if _is_base(cell)]
    low, high = (_near(base, load, "packaged") for load in (0.6, 1.0))
    yield (
        f"**Room.** No planner can pass the ceiling. At load {low['load']:g} with accuracies from "
        f"random weights it is {_most(low)} above the peers, at {high['load']:g} {_most(high)}."
    )
    published, papers = (
        _near(base, 0.8, gain_name) for gain_name in ("published weights", "the paper's")
    )
    yield (
        "**Gain of a retraining.** Accuracies of the paper's models were measured from random "
        f"weights. At load {published['load']:g} with the gains of published weights the leads are "
        f"{_leads(published)}, with the paper's own gains {_leads(papers)}."
    )
    yield from _what_it_takes(cells)
    reported = of["goodput"]["paper_gains"]
    missed = [peer for peer in PEERS if of["high-load"]["gains"][peer] < reported[peer]]
    if missed:
        yield (
            f"**Missed.** At load {of['high-load']['load']:g} with gains of published weights the "
            f"leads over {' and '.join(missed)} are below the paper's. Peers get all that "
            "[a real GPU supports](../peers.md); `paris-reconfiguring` partitions the GPU again "
            "whenever a retraining starts or ends, with workers that are prepared."
        )


def _what_it_takes(cells: list[Json]) -> Iterable[str]:
    """The cells with the paper's lead over PARIS, and how far the others are from it."""
    reached = [cell for cell in cells if _lead(cell, PARIS) >= WANTED]
    if reached:
        sentence = "; ".join(
            f"{conditions(cell)} ({_with_width(cell, PARIS)})"
            for cell in sorted(reached, key=lambda cell: -_lead(cell, PARIS))
        )
        yield (
            f"**What {WANTED:+.0%} over PARIS as the paper runs it takes**, of all "
            f"{len(cells)} cells of [the map](map.md): {sentence}."
        )
        return
    most = max(cells, key=lambda cell: _lead(cell, PARIS))
    yield (
        f"**{WANTED:+.0%} over PARIS as the paper runs it** is reached in no cell of the map; the "
        f"most is {100 * _lead(most, PARIS):+.0f}% ({conditions(most)})."
    )


def conditions(cell: Json) -> str:
    """A cell's conditions in words."""
    parts = [f"load {cell['load']:g}", f"gains: {cell['gain']}"]
    usual: dict[str, tuple[object, Callable[[Any], str]]] = {
        "traces": ("Alibaba + Azure", str),
        "length": (1, lambda value: f"retraining x {value:g}"),
        "tenants": (2, lambda value: f"{value} tenants"),
        "workers": ("prepared", lambda value: f"{value} workers"),
    }
    parts += [tell(cell[key]) for key, (value, tell) in usual.items() if cell[key] != value]
    return ", ".join(parts)


def _is_base(cell: Json) -> bool:
    usual = {"traces": "Alibaba + Azure", "length": 1, "tenants": 2, "workers": "prepared"}
    return all(cell[key] == value for key, value in usual.items())


def _near(cells: list[Json], load: float, gain_of: str) -> Json:
    """The cell of that gain whose load is nearest."""
    same = [cell for cell in cells if cell["gain"] == gain_of]
    return min(same, key=lambda cell: abs(cell["load"] - load))


def _lead(cell: Json, peer: str) -> float:
    lead = cell["leads"][peer]
    return 0.0 if lead is None else float(lead["mean"])


def _leads(cell: Json) -> str:
    return ", ".join(f"{_with_width(cell, peer)} over {peer}" for peer in PEERS)


def _with_width(cell: Json, peer: str) -> str:
    width = (cell["leads"][peer] or {}).get("half_width")
    return f"{_lead(cell, peer):+.1%}" + ("" if width is None else f" ± {100 * width:.1f}")


def _most(cell: Json) -> str:
    leads = [cell["most"][peer] for peer in PEERS if cell["most"][peer] is not None]
    return f"{100 * min(leads):.0f} to {100 * max(leads):.0f}%"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("figures", type=Path, help="what `migrator reproduce all --json` printed")
    parser.add_argument("--map", type=Path, default=Path("docs/results/map.json"))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    figures, drawn = (
        json.loads(figure.read_text(encoding="utf-8"))
        for figure in (arguments.figures, arguments.map)
    )
    (arguments.out / "paper-figures.md").write_text(text(figures, drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
