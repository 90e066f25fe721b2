"""Report pages: one file, nothing fetched, everything said without the charts too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.html import ParsedPage

from migrator.core.errors import InputError, MigratorError
from migrator.report.chart_tables import numbers_of
from migrator.report.html_page import check_page_path, page_text, write_figure, write_page
from migrator.report.page import (
    Axis,
    Bars,
    Chart,
    HeatMap,
    Lines,
    Note,
    Page,
    Picture,
    Section,
    Series,
    Slab,
    Slices,
    Table,
    Use,
)
from migrator.report.paint import Paint
from migrator.report.plotly_charts import figure_of, height_of

SHARE = Axis("goodput share", share=True)
EVIL = "</script><b>%{x} & `co`"

BARS = Bars(
    "Bars",
    ("a", "b"),
    (Series("migrator", (0.8, 0.7), (0.01, None)), Series("ekya", (0.6, None))),
    Axis("scenario"),
    SHARE,
)
RANKING = Bars("Ranking", ("a",), (Series("x", (0.5,)),), Axis("p"), SHARE, horizontal=True)
STACK = Bars("Stack", ("0",), (Series("late", (3.0,)),), Axis("w"), Axis("n"), True)
LINES = Lines(
    "Lines", (0.5, 1.0), (Series("a", (1.0, 2.0), (0.1, 0.2)),), Axis("x", "s"), Axis("y")
)
STEPS = Lines(
    "Steps",
    (0.0, 1.0),
    (Series("expected", (1.0, 2.0), dashed=True), Series("came", (1.5, 1.0))),
    Axis("time", "s"),
    Axis("requests"),
    until=2.0,
)
AREAS = Lines(
    "Areas",
    (0.0, 1.0, 2.0),
    (Series("a", (40.0, 40.0, 60.0)), Series("b", (20.0, 20.0, 0.0), paint=Paint(0, hatched=True))),
    Axis("time", "s"),
    Axis("share", "%"),
    until=3.0,
    stacked=True,
)
HEAT = HeatMap("Heat", ("c", "d"), ("r",), ((0.1, None),), Axis("x"), Axis("y"), SHARE)
SLICES = Slices(
    "Slices",
    8,
    10.0,
    ("bert",),
    (
        Slab("bert", Use.SERVING, "3g", 0, 4, 0.0, 5.5),
        Slab("bert", Use.RETRAINING, "1g", 4, 1, 5.5, 10.0),
        Slab(None, Use.UNUSED, "1g", 5, 1, 0.0, 10.0),
    ),
)
CHARTS: tuple[Chart, ...] = (BARS, RANKING, STACK, LINES, STEPS, AREAS, HEAT, SLICES)
TABLE = Table("Totals", ("policy", "n"), (("migrator", "12"),), frozenset({1}), frozenset({(0, 1)}))


def page(*blocks: Chart | Table | Note, title: str = "Report") -> Page:
    sections = (Section("First", "first", ("Words.",), blocks), Section("Second", "second"))
    return Page(title, "Lead.", sections)


def parsed(page: Page) -> ParsedPage:
    return ParsedPage(page_text(page, "/* plotly */"))


def test_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    write_page(page(*CHARTS), tmp_path / "out.HTML")
    text = (tmp_path / "out.HTML").read_text(encoding="utf-8")
    html = ParsedPage(text)
    assert html.addresses == ["#first", "#second"]
    figures, library, _ = html.scripts
    assert "plotly.js" in library[:200]
    assert text.count(library) == 1
    assert len(json.loads(figures)) == len(CHARTS)
    assert "://" not in figures
    assert [path.name for path in tmp_path.iterdir()] == ["out.HTML"]


def test_the_page_says_its_language_and_fits_a_phone() -> None:
    html = parsed(page(TABLE))
    assert html.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in html.all(
        "meta"
    )
    assert html.tags["h1"] == html.tags["main"] == html.tags["nav"] == 1
    assert [part["id"] for part in html.all("section")] == ["first", "second"]


def test_every_table_has_caption_scopes_and_a_box_to_scroll_in() -> None:
    html = parsed(page(TABLE, *CHARTS))
    assert html.tags["table"] == html.tags["caption"] == 1 + len(CHARTS)
    assert {head["scope"] for head in html.all("th")} == {"col", "row"}
    boxes = [box for box in html.all("div") if box.get("class") == "box"]
    assert len(boxes) == html.tags["table"]
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)


def test_every_chart_has_words_and_its_numbers_without_javascript() -> None:
    html = parsed(page(*CHARTS))
    plots = [box for box in html.all("div") if box.get("class") == "plot"]
    assert [plot["role"] for plot in plots] == ["img"] * len(CHARTS)
    assert plots[0]["aria-label"] == "Bars"
    assert html.tags["details"] == len(CHARTS)
    for number in ("80.0%\u00a0±\u00a01.0%", "60.0%", "10.0%", "5.5"):
        assert number in html.words


def test_text_is_escaped_but_code_and_addresses_are_set() -> None:
    lead = "Run `migrator <x>`, see https://example.org/a?b=1&c=2."
    html = parsed(Page(EVIL, lead, (Section(EVIL, "first", (EVIL,), (Note(EVIL, (EVIL,)),)),)))
    assert html.tags["b"] == 0
    assert html.words.count("</script><b>") == 6
    assert "migrator <x>" in html.words
    assert html.tags["code"] == 3
    assert html.addresses == ["https://example.org/a?b=1&c=2"]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_any_name_can_be_drawn(chart: Chart) -> None:
    renamed: dict[str, Any] = dict(vars(chart))
    renamed["title"] = EVIL
    if "series" in renamed:
        renamed["series"] = tuple(
            Series(EVIL, row.values, row.half_widths) for row in renamed["series"]
        )
    for name in ("categories", "columns", "rows"):
        if name in renamed:
            renamed[name] = tuple(f"{EVIL}{at}" for at, _ in enumerate(renamed[name]))
    html = parsed(page(type(chart)(**renamed)))
    assert html.tags["b"] == 0
    assert len(html.scripts) == 3
    json.loads(html.scripts[0])
    assert "<b>%{x}" not in json.dumps(figure_of(type(chart)(**renamed)))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_figures_follow_plotlys_schema(chart: Chart) -> None:
    import plotly.graph_objects as go

    figure = figure_of(chart)
    made = go.Figure(data=figure["data"], layout=figure["layout"])
    assert len(made.data) >= 1
    assert made.layout.height == height_of(chart)


def test_nothing_that_json_cannot_say_gets_into_a_figure() -> None:
    odd = Series("odd", (float("nan"), float("inf")), (float("nan"), None))
    chart = Bars("Odd", ("a", "b"), (odd,), Axis("x"), SHARE)
    text = json.dumps(figure_of(chart), allow_nan=False)
    assert '"y": [null, null]' in text
    assert parsed(page(chart)).words.count("-") >= 2


def test_slabs_lie_on_their_slices() -> None:
    serving, retraining, _ = figure_of(SLICES)["data"]
    assert (serving["base"], serving["x"], serving["y"], serving["text"]) == (
        [0.0],
        [5.5],
        [2.0],
        ["3g"],
    )
    assert retraining["marker"]["pattern"]["shape"] == "/"


# The numbers behind charts, as tables.

TIME = Axis("time", "s")


@pytest.mark.parametrize(
    ("value", "axis", "words"),
    [
        (0.8123, Axis("x", share=True), "81.2%"),
        (1234567.8, Axis("x", "requests"), "1,234,568 requests"),
        (3.0, Axis("x"), "3"),
        (0.012346, TIME, "0.01235 s"),
        (None, TIME, "-"),
        (float("nan"), TIME, "-"),
    ],
)
def test_values_are_said_as_their_axis_measures(
    value: float | None, axis: Axis, words: str
) -> None:
    assert axis.text(value) == words


def test_long_lines_are_tabulated_by_means() -> None:
    chart = Lines("L", tuple(map(float, range(1000))), (Series("a", (1.0, 3.0) * 500),), TIME, TIME)
    table = numbers_of(chart)
    assert len(table.rows) == 250
    assert table.rows[1] == ("4", "2")
    assert "means of 4 neighbouring points" in table.caption


def test_short_lines_are_tabulated_whole() -> None:
    chart = Lines("L", (0.5, 1.0), (Series("a", (1.0, None), (0.5, None)),), TIME, TIME)
    assert numbers_of(chart).rows == (("0.5", "1\u00a0±\u00a00.5"), ("1", "-"))


def test_heat_maps_are_tabulated_as_they_are() -> None:
    share = Axis("goodput", share=True)
    chart = HeatMap("H", ("c", "d"), ("r",), ((0.1, None),), Axis("policy"), Axis("load"), share)
    table = numbers_of(chart)
    assert (table.headers, table.rows) == (("load", "c", "d"), (("r", "10.0%", "-"),))


def test_slices_are_tabulated_by_slab() -> None:
    slabs = (
        Slab("bert", Use.SERVING, "3g", 0, 4, 0.0, 5.5),
        Slab("bert", Use.SERVING, "1g", 4, 1, 0.0, 10.0),
    )
    chart = Slices("S", 8, 10.0, ("bert",), slabs)
    assert numbers_of(chart).rows == (
        ("bert", "3g", "0 to 3", "0", "5.5"),
        ("bert", "1g", "4", "0", "10"),
    )


# Failures


def draw(path: Path, option: str = "--figure") -> None:
    write_figure(path, option, lambda: page(BARS), lambda: Picture("", "", (BARS,)))


@pytest.mark.parametrize("name", ["out.png", "out", ".html"])
def test_a_page_has_the_suffix_html(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"--report: .* must end in \.html$"):
        write_page(page(TABLE), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.pdf", "out", ".png"])
def test_a_figure_has_the_suffix_html_or_png(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"--out.*\.html or \.png"):
        draw(tmp_path / name, "--out")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--out: .*nowhere is not a directory"):
        check_page_path(tmp_path / "nowhere" / "out.html", "--out")
    with pytest.raises(InputError, match=r"--figure.*nowhere is not a directory"):
        draw(tmp_path / "nowhere" / "out.png")
    (tmp_path / "out.html").mkdir()
    with pytest.raises(InputError, match=r"--report: cannot write .*out\.html"):
        check_page_path(tmp_path / "out.html")


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("name", ["out.html", "out.png"])
def test_an_interruption_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException], name: str
) -> None:
    def fail(path: Path, _target: Path) -> None:
        assert path.stat().st_size > 0
        raise failure

    (tmp_path / name).write_text("the old one")
    monkeypatch.setattr(Path, "replace", fail)
    monkeypatch.setattr("migrator.report.png.write", lambda _, path: path.write_bytes(b"half"))
    with pytest.raises(failure):
        draw(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "the old one"


@pytest.mark.parametrize(("suffix", "library"), [("html", "plotly"), ("png", "matplotlib")])
def test_a_missing_library_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, library: str
) -> None:
    monkeypatch.delitem(sys.modules, "migrator.report.png", raising=False)
    for name in {library, *sys.modules}:
        if name.partition(".")[0] == library:
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MigratorError, match=rf"{library}.*pip install 'migrator-gpu\[figures\]'"):
        draw(tmp_path / f"out.{suffix}")
    assert list(tmp_path.iterdir()) == []
