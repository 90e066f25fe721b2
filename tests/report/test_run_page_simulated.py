"""The report page of simulated runs: one, and several side by side."""

from __future__ import annotations

from support.scenarios import Fixed, Flat, drift, scenario, serves, share, tenant, trains

from migrator.core.catalogue import board
from migrator.core.problem import Holding
from migrator.core.scenario import Scenario
from migrator.policies.policy import Sharing
from migrator.records.outcome import RunOutcome
from migrator.records.runs import recorded_run
from migrator.report.page import Bars, Page, Section, Slices, Table
from migrator.report.run_page import MOST_WINDOWS, run_page
from migrator.simulation.run import run

PHOTOS, CAMERAS, TRAINS = serves("photos", 0, 2), serves("cameras", 4, 3), trains("photos", 4, 3)
MOVED: tuple[tuple[Holding, ...], ...] = (
    *([(PHOTOS, CAMERAS)] * 3),
    *([(PHOTOS, TRAINS, serves("cameras", 2, 2))] * 7),
)


class Named(Fixed):
    """The policy under a name of its own."""

    def __init__(
        self, name: str, *slots: tuple[Holding, ...], sharing: Sharing = Sharing.MIG
    ) -> None:
        super().__init__(*slots, sharing=sharing)
        self.name = name


def made(windows: int) -> Scenario:
    photos = tenant("photos", [200] * 10 * windows, drifts=(drift(seconds=4.0),) * windows)
    return scenario(photos, tenant("cameras", [8] * 10 * windows), windows=windows)


def outcome(policy: Named, windows: int = 2) -> RunOutcome:
    return run(made(windows), policy, Flat(), record=True)


def report(*outcomes: RunOutcome) -> Page:
    records = [outcome.records for outcome in outcomes if outcome.records is not None]
    assert len(records) == len(outcomes)
    return run_page([recorded_run(rows) for rows in records], board("H200-141GB"))


def table(page: Page, caption: str) -> Table:
    blocks = [block for section in page.sections for block in section.blocks]
    return next(b for b in blocks if isinstance(b, Table) and b.caption.startswith(caption))


def column(table: Table, header: str) -> list[str]:
    plain = [header.replace("\u00ad", "") for header in table.headers]
    return [row[plain.index(header)] for row in table.rows]


def section(page: Page, anchor: str) -> Section:
    return next(part for part in page.sections if part.anchor.endswith(anchor))


def test_the_tables_have_the_figures_of_the_outcome() -> None:
    simulated = outcome(Named("moving", *MOVED))
    page, tally = report(simulated), simulated.tally
    whole = table(page, "All windows")
    assert column(whole, "goodput share")[-1] == f"{tally.goodput_share:.1%}"
    assert column(whole, "while reconfiguring")[-1] == f"{tally.while_reconfiguring}"
    windows = table(page, "By window and tenant")
    assert column(windows, "tenant") == ["photos", "cameras", "all"] * 2
    received = [f"{window.tally.received:,}" for window in simulated.windows]
    assert column(windows, "received")[2::3] == received
    new = [f"{window.reconfigurations}" for window in simulated.windows]
    assert column(windows, "new instances")[2::3] == new
    (first, *_) = simulated.windows[0].tenants
    assert column(windows, "retrained")[0] == f"{first.retrained_s:.3g} s, 50.0% → 90.0%"


def test_one_run_leads_with_what_was_held_and_draws_at_most_12_windows() -> None:
    page = report(outcome(Named("static", (PHOTOS, CAMERAS)), MOST_WINDOWS + 1))
    lead = page.sections[0].blocks[0]
    assert isinstance(lead, Slices)
    assert lead.title == "Windows 1 to 12: held"
    assert lead.until_s == 10.0 * MOST_WINDOWS
    drawn = section(page, "slices")
    # planned and held
    assert sum(isinstance(block, Slices) for block in drawn.blocks) == 2 * MOST_WINDOWS
    assert "The last 12 of 13 windows are drawn." in drawn.paragraphs


def test_shares_are_drawn_as_percentages() -> None:
    shares = (share("photos", 20.0), share("cameras", 20.0))
    page = report(outcome(Named("mps", shares, sharing=Sharing.MPS), 1))
    for chart in section(page, "slices").blocks:
        assert isinstance(chart, Slices)
        assert {slab.size for slab in chart.slabs} == {"20%"}


def test_several_runs_are_ranked_and_stand_side_by_side() -> None:
    small = outcome(Named("small", (serves("photos", 0, 1), CAMERAS)))
    large = outcome(Named("large", (serves("photos", 0, 4), CAMERAS)))
    page = report(small, large)
    ranking, by_window, by_tenant = (
        block for block in page.sections[0].blocks if isinstance(block, Bars)
    )
    assert ranking.categories == ("large", "small")
    assert table(page, "All windows").highlights == {(1, 4)}
    assert by_window.categories == ("0", "1")
    for series, simulated in zip(by_window.series, (small, large), strict=True):
        shares = tuple(window.tally.goodput_share for window in simulated.windows)
        assert series.values == shares
    assert by_tenant.categories == ("photos", "cameras")
    anchors = [part.anchor for part in page.sections]
    assert len(set(anchors)) == len(anchors)
    assert page.sections[1].title == "small: Windows"
