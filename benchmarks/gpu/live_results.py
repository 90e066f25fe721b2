"""What a live run on a GPU came to, with simulation beside it, as a page for docs/results.

    PYTHONPATH=src:benchmarks:benchmarks/gpu python benchmarks/gpu/live_results.py FOLDER \
        --out docs/results/h200-live.json

FOLDER is what benchmarks/gpu/live.py left: loads, records, profile and scenario. Writes the
numbers and prints them as tables. Simulated with what only the run could tell: accuracies, how
long retrainings took, what new workers took.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from measured_run import LiveRun
from simulated_live import simulate

from migrator.core.outcome import RunOutcome
from migrator.records.rows import RunRecords
from migrator.records.store import read_records
from migrator.workload.live import read_live

PARTS = ("create_s", "load_s", "context_s", "copy_s", "first_s", "warm_s")


def main() -> None:
    """The file and the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    names = [each.name.partition(".")[0] for each in sorted(asked.folder.glob("*.load.json"))]
    found = {name: results(asked.folder, name) for name in names}
    told = json.dumps(found, indent=1) + "\n"
    asked.out.write_text(told, encoding="utf-8")
    print("\n".join(tables(found)))


def results(folder: Path, name: str) -> dict[str, Any]:
    """One policy: as clients saw it, as records have it, as simulated."""
    live = read_live(folder / "live.yaml")
    sent = json.loads((folder / f"{name}.load.json").read_text(encoding="utf-8"))
    records = read_records(folder / f"{name}.records.db")
    simulated = simulate(live, name, LiveRun(records, sent), ())
    return {
        "live": {each: _seen(told) for each, told in _tenants(sent)},
        "simulated": _simulated(simulated),
        "windows": [_seen(each) for each in sent["windows"]],
        "overhead_s": _overheads(records),
        "retrainings": _retrainings(records),
        "plan_s": [each.plan_s for each in records.windows],
        "replans": sum(each.replans for each in records.windows),
    }


def _tenants(sent: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    yield from sent["tenants"].items()
    yield "all", sent


def _seen(told: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("sent", "goodput", "late", "dropped", "slo_attainment", "accuracy", "goodput_share")
    row = {each: told[each] for each in kept}
    latencies_ms = {name: 1e3 * value for name, value in told["latencies"].items()}
    return row | {"refused": sum(told["refused"].values()), **latencies_ms}


def _simulated(outcome: RunOutcome) -> dict[str, Any]:
    tallies = {**outcome.tenants, "all": outcome.tally}
    return {
        name: {"goodput": each.goodput, "slo_attainment": each.slo_attainment}
        for name, each in tallies.items()
    }


def _overheads(records: RunRecords) -> dict[str, dict[str, float]]:
    """Medians per tenant of what workers took until they served, and how many there were."""
    known: dict[str, list[Mapping[str, float]]] = {}
    for each in records.units:
        if each.parts_s and each.tenant is not None:
            known.setdefault(each.tenant, []).append(each.parts_s)
    return {
        tenant: {"starts": len(rows)}
        | {part: median(each.get(part, 0.0) for each in rows) for part in PARTS}
        for tenant, rows in known.items()
    }


def _retrainings(records: RunRecords) -> list[dict[str, Any]]:
    first_s = records.windows[0].began_s
    ended = {
        each.tenant: (each.accuracy, each.adopted, each.why)
        for each in records.versions
        if each.at_s > first_s
    }
    return [
        {
            "tenant": each.tenant,
            "on": each.unit.partition("#")[0],
            "from_s": each.from_s - first_s,
            "seconds": None if each.to_s is None else each.to_s - each.from_s,
            "came_to": ended.get(each.tenant or ""),
        }
        for each in records.units
        if each.state == "training" and each.to_s is not None and each.to_s - each.from_s > 1
    ]


def tables(found: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """As docs/results/h200-live.md has them."""
    yield "| policy | tenant | sent | goodput | of sent | in time | accuracy | p50 / p99 ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, result in found.items():
        for tenant, row in result["live"].items():
            yield (
                f"| {name} | {tenant} | {row['sent']:,} | {row['goodput']:,} | "
                f"{row['goodput_share']:.1%} | {row['slo_attainment']:.1%} | "
                f"{row['accuracy']:.1%} | {row['p50_s']:.1f} / {row['p99_s']:.1f} |"
            )
    yield ""
    yield "| policy | goodput live | simulated | live / simulated | in time live | simulated |"
    yield "|---|---|---|---|---|---|"
    for name, result in found.items():
        live, simulated = result["live"]["all"], result["simulated"]["all"]
        yield (
            f"| {name} | {live['goodput']:,} | {simulated['goodput']:,.0f} | "
            f"{live['goodput'] / simulated['goodput']:.3f} | {live['slo_attainment']:.1%} | "
            f"{simulated['slo_attainment']:.1%} |"
        )
    yield ""
    yield "| policy | tenant | starts | create s | load s | context s | copy s | first s | in all |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, result in found.items():
        for tenant, row in result["overhead_s"].items():
            cells = " | ".join(f"{row[part]:.2f}" for part in PARTS)
            yield f"| {name} | {tenant} | {row['starts']} | {cells} |"
    yield ""
    yield "| policy | retraining | on | from s | seconds | came to |"
    yield "|---|---|---|---|---|---|"
    for name, result in found.items():
        for row in result["retrainings"]:
            why = row["came_to"][2] if row["came_to"] else "cut off by the end of the run"
            yield (
                f"| {name} | {row['tenant']} | {row['on']} | {row['from_s']:.0f} | "
                f"{row['seconds']:.0f} | {why} |"
            )


if __name__ == "__main__":
    main()
