"""planner.md: the page made from the studies that were measured."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.sections import SECTIONS
from benchmarks.tables import Lines


def render(records: dict[str, Record]) -> str:
    """The whole page; a study that was not measured is left out."""
    lines = ["# How fast and how good the planners are", ""]
    made_by = "python -m benchmarks.planner --out docs/results"
    lines += [f"`{made_by}`; `--only STUDY` repeats one.", ""]
    faults = [fault for record in records.values() for fault in record.faults]
    if faults:
        lines += ["**Faults**", "", *(f"- {fault}" for fault in faults), ""]
    lines += _machines(records)
    for name, record in records.items():
        title, body = SECTIONS[name]
        lines += ["", f"## {title}", "", *body(record), ""]
        lines.append(_provenance(record))
    return "\n".join(lines) + "\n"


def _machines(records: dict[str, Record]) -> Lines:
    """Each machine once, with the studies that ran on it."""
    seen: list[dict[str, str]] = []
    lines: Lines = []
    for record in records.values():
        if record.machine in seen:
            continue
        seen.append(record.machine)
        names = [name for name, other in records.items() if other.machine == record.machine]
        studies = f" ({', '.join(names)})" if len(names) < len(records) else ""
        parts = ", ".join(f"{name} {value}" for name, value in record.machine.items())
        lines.append(f"Machine{studies}: {parts}.")
    return lines


def _provenance(record: Record) -> str:
    smoke = "**Smoke run with tiny sizes, not a result.** " if record.quick else ""
    return f"{smoke}{record.measured} UTC, load average before {record.load_average:g}."
