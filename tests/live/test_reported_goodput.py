"""What the daemon reports of every tenant and window is what its clients counted, or unknown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from support.live_daemon import scenario_file, served
from support.loads import loaded

from migrator.core.evidence import CLOSE
from migrator.core.outcome import ClientTally
from migrator.core.scenario import LabelsAt
from migrator.records.rows import TenantWindowRecord
from migrator.records.store import read_records
from migrator.workload.live import read_live

WINDOWS, WINDOW_S, RATE = 2, 5, 30
EDGE = 2
"""Requests that may fall into another window for the daemon than for their clients."""


@dataclass(frozen=True)
class Reported:
    """A tenant in a window."""

    row: TenantWindowRecord
    counted: ClientTally


def reported(folder: Path, labels_at: LabelsAt) -> list[Reported]:
    """A load of two tenants, under a policy that does not estimate."""
    path = scenario_file(folder, "photos", "cameras", window_s=WINDOW_S, policy="equal-mig")
    text = path.read_text(encoding="utf-8").replace("mean_rps: 5", f"mean_rps: {RATE}")
    path.write_text(text, encoding="utf-8")
    state = folder / "state"
    options = ("--from-first-request", "--windows", str(WINDOWS))
    with served(path, state, *options) as daemon:
        outcome = loaded(
            read_live(path),
            daemon.url,
            windows=WINDOWS,
            labels_at=labels_at,
            first_lead_s=4.0,
        )
        assert daemon.process.wait(60) == 0, daemon.said()
    rows = read_records(state / "live" / "small" / "records.db").tenant_windows
    counted = {
        (window.window, name): e for window in outcome.windows for name, e in window.tenants.items()
    }
    assert len(rows) == len(counted) == 2 * WINDOWS
    return [Reported(row, counted[row.window, row.tenant]) for row in rows]


def near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= CLOSE * theirs + EDGE


def test_with_labels_as_feedback_it_is_what_clients_counted(tmp_path: Path) -> None:
    for pair in reported(tmp_path, LabelsAt.FEEDBACK):
        assert near(pair.row.received, pair.counted.sent), pair
        assert near(pair.row.in_time, pair.counted.in_time), pair
        assert pair.row.goodput is not None, pair
        assert near(pair.row.goodput, pair.counted.goodput), pair


def test_with_labels_at_the_start_it_is_unknown_and_the_accuracy_says_why(tmp_path: Path) -> None:
    for pair in reported(tmp_path, LabelsAt.START):
        assert near(pair.row.received, pair.counted.sent), pair
        assert near(pair.row.in_time, pair.counted.in_time), pair
        assert pair.row.goodput is None, pair
        assert pair.row.evidence == "samples", pair
