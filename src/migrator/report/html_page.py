"""Writes a report as one HTML file that needs no network, or its charts as a PNG.

The page is readable on a phone, in print and in dark mode. Every chart has its numbers in a table,
so that nothing is lost without JavaScript.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from migrator.io.atomic_write import write_atomically
from migrator.io.output_file import check_path, drawing_module
from migrator.report.chart_tables import numbers_of
from migrator.report.page import Block, Chart, Lines, Note, Page, Picture, Section, Table, legend_of
from migrator.report.paint import Paint
from migrator.report.plotly_charts import figure_of, height_of, upright_title, width_of

_INLINE = re.compile(r"`([^`]+)`|(https?://[^\s<>\"]+[^\s<>\".,;:!?)])")
_LONG_CELL = 28
"""Characters from which a cell's words may wrap."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
{style}</style>
<noscript><style>.plot, .scale {{ display: none; }}</style></noscript>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="lead">{lead}</p>
<noscript><p>Charts need JavaScript; the tables below their titles do not.</p></noscript>
</header>
{contents}
<main>
{sections}
</main>
{scripts}</body>
</html>
"""
_CONTENTS = """<nav aria-labelledby="contents">
<span class="contents" id="contents">Contents</span>
<ol>
{items}
</ol>
</nav>"""
_SCRIPTS = """<script type="application/json" id="charts">{charts}</script>
<script>{library}</script>
<script>
{script}</script>
"""


def check_page_path(path: Path, option: str = "--report") -> None:
    """InputError if a page cannot be written to `path`; call it before a long computation."""
    check_path(path, (".html",), option)


def check_figure_path(path: Path, option: str = "--figure") -> None:
    """As `check_page_path`, for files that may also be pictures."""
    check_path(path, (".html", ".png"), option)


def write_figure(
    path: Path, option: str, page: Callable[[], Page], picture: Callable[[], Picture]
) -> None:
    """Write the page or the picture, by the suffix of `path`; a failure leaves no file."""
    check_figure_path(path, option)
    if path.suffix.lower() == ".html":
        write_page(page(), path, option)
        return
    png = drawing_module("migrator.report.png", option)
    with write_atomically(path, option=option) as unfinished:
        png.write(picture(), unfinished)


def write_page(page: Page, path: Path, option: str = "--report") -> None:
    """Write the page to `path`; a failure or Ctrl-C leaves no file."""
    check_page_path(path, option)
    library = drawing_module("plotly.offline", option).get_plotlyjs()
    text = page_text(page, library)
    with write_atomically(path, option=option) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def page_text(page: Page, library: str) -> str:
    """The whole file; `library` is plotly.js, embedded if there are charts."""
    charts: list[Chart] = []
    sections = "\n".join(_section(section, charts) for section in page.sections)
    items = "\n".join(
        f'<li><a href="#{html.escape(section.anchor)}">{html.escape(section.title)}</a></li>'
        for section in page.sections
    )
    return _PAGE.format(
        title=html.escape(page.title),
        lead=_inline(page.lead),
        style=_packaged("page.css"),
        contents=_CONTENTS.format(items=items) if len(page.sections) > 1 else "",
        sections=sections,
        scripts=_scripts(charts, library) if charts else "",
    )


def _scripts(charts: Sequence[Chart], library: str) -> str:
    figures = json.dumps([figure_of(chart) for chart in charts], separators=(",", ":"))
    return _SCRIPTS.format(
        # "</script>" inside a script would end it; "\u003c" says the same in JSON.
        charts=figures.replace("<", "\\u003c"),
        library=library,
        script=_packaged("page.js"),
    )


def _packaged(name: str) -> str:
    return files("migrator.report").joinpath(name).read_text(encoding="utf-8")


def _section(section: Section, charts: list[Chart]) -> str:
    parts = [
        f'<section id="{html.escape(section.anchor)}">',
        f"<h2>{html.escape(section.title)}</h2>",
    ]
    parts += [f"<p>{_inline(paragraph)}</p>" for paragraph in section.paragraphs]
    parts += _blocks(section.blocks[: section.shown], charts)
    if section.shown is not None and (rest := section.blocks[section.shown :]):
        parts.append(f'<details class="more">\n<summary>{html.escape(section.more)}</summary>')
        parts += [*_blocks(rest, charts), "</details>"]
    return "\n".join([*parts, "</section>"])


def _blocks(blocks: Sequence[Block], charts: list[Chart]) -> Iterator[str]:
    """The blocks in order, neighbouring notes in one row."""
    for is_note, group in groupby(blocks, key=lambda block: isinstance(block, Note)):
        if is_note:
            notes = "\n".join(_note(note) for note in group if isinstance(note, Note))
            yield f'<div class="notes">\n{notes}\n</div>'
            continue
        for table in group:
            if isinstance(table, Table):
                yield _table(table)
            elif not isinstance(table, Note):
                yield _figure(table, len(charts))
                charts.append(table)


def _note(note: Note) -> str:
    paragraphs = "\n".join(f"<p>{_inline(paragraph)}</p>" for paragraph in note.paragraphs)
    return f'<aside class="note">\n<h3>{html.escape(note.title)}</h3>\n{paragraphs}\n</aside>'


def _figure(chart: Chart, number: int) -> str:
    scale = ""
    if (title := upright_title(chart)) is not None:
        scale = f'<div class="scale" aria-hidden="true">{html.escape(title)}</div>\n'
    return (
        f'<figure aria-labelledby="chart-{number}">\n'
        f'<figcaption id="chart-{number}">{html.escape(chart.title)}</figcaption>\n'
        f"{_legend(chart)}{scale}"
        f'<div class="wide"><div class="plot" role="img" data-chart="{number}" '
        f'style="height:{height_of(chart)}px;min-width:{width_of(chart)}px" '
        f'aria-label="{html.escape(chart.title)}"></div></div>\n'
        f"{_table(numbers_of(chart), 'The numbers as a table')}\n</figure>"
    )


def _legend(chart: Chart) -> str:
    forms = _forms(chart)
    items = "\n".join(
        f'<li><span class="swatch{" dashed" if dashed else forms.get(name, "")}" '
        f'style="{_swatch(paint, dashed, is_line=forms.get(name) == " line")}"></span>'
        f"<span>{html.escape(name)}</span></li>"
        for name, paint, dashed in legend_of(chart)
    )
    return f'<ul class="legend">\n{items}\n</ul>\n' if items else ""


def _forms(chart: Chart) -> dict[str, str]:
    """The classes of swatches of lines and of the areas below them."""
    if not isinstance(chart, Lines) or chart.stacked:
        return {}
    return {row.name: " area" if row.area else " line" for row in chart.series}


def _swatch(paint: Paint, dashed: bool, *, is_line: bool) -> str:
    shade = paint.shade
    if dashed:
        return f"border-color:{shade.dark}"
    if is_line and not paint.light:
        return f"background:{shade.dark}"
    if paint.hatched:
        stripes = f"135deg,{paint.ground} 0 3px,{shade.fill} 3px 5px"
        return f"border-color:{shade.fill};background:repeating-linear-gradient({stripes})"
    return f"background:{paint.fill}"


def _table(table: Table, summary: str = "") -> str:
    label = html.escape(table.caption)
    text = (
        f'<div class="box" role="region" tabindex="0" aria-label="{label}">\n<table>\n'
        f"<caption>{html.escape(table.caption)}</caption>\n"
        f"<thead><tr>{''.join(_head(table, at) for at in range(len(table.headers)))}</tr></thead>\n"
        f"<tbody>\n{''.join(_row(table, at) for at in range(len(table.rows)))}</tbody>\n"
        "</table>\n</div>"
    )
    if not table.folded:
        return text
    summary = html.escape(summary or table.caption)
    return f"<details>\n<summary>{summary}</summary>\n{text}\n</details>"


def _head(table: Table, column: int) -> str:
    kind = ' class="number"' if column in table.numeric else ""
    return f'<th scope="col"{kind}>{html.escape(table.headers[column])}</th>'


def _row(table: Table, row: int) -> str:
    first, *rest = table.rows[row]
    cells = [
        f"<td{_classes(table, row, column, text)}>{_inline(text)}</td>"
        for column, text in enumerate(rest, 1)
    ]
    kind = _classes(table, row, 0, first)
    return f'<tr><th scope="row"{kind}>{html.escape(first)}</th>{"".join(cells)}</tr>\n'


def _classes(table: Table, row: int, column: int, text: str) -> str:
    names = {
        "number": column in table.numeric,
        "words": len(text) > _LONG_CELL,
        "best": (row, column) in table.highlights,
    }
    class_names = " ".join(name for name, holds in names.items() if holds)
    return f' class="{class_names}"' if class_names else ""


def _inline(text: str) -> str:
    """Escaped, with `code` and web addresses set as such."""
    parts, at = [], 0
    for match in _INLINE.finditer(text):
        parts.append(html.escape(text[at : match.start()]))
        code, address = match.groups()
        if code:
            parts.append(f"<code>{html.escape(code)}</code>")
        else:
            shown = html.escape(address)
            parts.append(f'<a href="{shown}" rel="noreferrer">{shown}</a>')
        at = match.end()
    return "".join([*parts, html.escape(text[at:])])
