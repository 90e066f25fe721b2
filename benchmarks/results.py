"""The pages of docs/results: what they were measured with, and whether that is the code of today.

    python -m benchmarks.results            # list: page, commit, code, seconds
    python -m benchmarks.results --check    # exit 1 if a page's figures are not those of its rows
    python -m benchmarks.results --render   # write pages and last lines from the rows
    python -m benchmarks.results --run [PAGE ...]        # measure again what is older than its code
    python -m benchmarks.results --record PAGE --took-s 120  # rows that were measured otherwise

Rows are JSON files beside the pages. provenance.json has, for every page, the command, commit and
digest of the code that measured its rows, and a digest of these rows. Pages are rendered whole from
their rows, or have tables that are, or say that their rows were not kept.

`--run` works in out/results/DIGEST, where benchmarks keep what is finished, so that an interrupted
call goes on; MIGRATOR_DATA names the folder of real traces. Pages that need a GPU are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks import (
    configuration_times,
    configurations,
    floors,
    forecasters_page,
    headline_page,
    left_out,
    live_configurations,
    live_grid,
    live_table,
    paper_figures,
    replanning,
    settings,
    survivors_gap,
)
from benchmarks.gpu import recovery_page
from benchmarks.headline_runs import Part
from benchmarks.record import read_records
from benchmarks.render import render as planner_page
from benchmarks.results_file import code_digest
from benchmarks.retraining_configurations import read_courses
from benchmarks.retraining_configurations_page import page as configurations_page
from benchmarks.studies import STUDIES

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
WORK = ROOT / "out" / "results"
PROVENANCE = "provenance.json"
_PYTHON = ("python", "-m")
_PLANNER = tuple(f"{study}.json" for study in STUDIES)


class Age(StrEnum):
    """What the rows of a page were measured with."""

    SAME = "same code"
    OLDER = "older than its code"
    UNKNOWN = "code not recorded"
    NOT_KEPT = "rows not kept"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Page:
    """A page of docs/results."""

    name: str
    rows: tuple[str, ...] = ()
    """Files beside it, which its figures are made of."""
    whole: Callable[[Path], str] | None = None
    """Renders the page from a folder of rows, all but its last line."""
    tables: Callable[[Path], Sequence[str]] | None = None
    """Renders the lines of a table; text and other tables are written by hand."""
    command: tuple[str, ...] = ()
    """Measures the rows into the folder {work}; empty: needs a GPU, or another page's rows."""
    more: tuple[str, ...] = ()
    """Files that it makes beside the rows."""
    code: tuple[str, ...] = ()
    """Folders of src/migrator that the figures depend on; empty: those of a simulation."""
    note: str = ""
    """What is not so with this page."""

    def age(self, folder: Path) -> Age:
        """Whether the rows were measured with the code of this checkout."""
        if not all((folder / file).exists() for file in self.rows) or not self.rows:
            return Age.NOT_KEPT if (folder / f"{self.name}.md").exists() else Age.NOT_MEASURED
        others = self.measured_by()
        if others:
            ages = [other.age(folder) for other in others]
            return next(age for age in (*list(Age)[1:], Age.SAME) if age in ages)
        recorded = provenance(folder).get(self.name, {})
        if recorded.get("code") is None or recorded.get("rows") != rows_digest(folder, self.rows):
            return Age.UNKNOWN
        return Age.SAME if recorded["code"] == self.digest() else Age.OLDER

    def measured_by(self) -> list[Page]:
        """The pages whose commands measure the rows of one that has no command."""
        if self.command:
            return []
        return [other for other in PAGES if other.command and set(other.rows) & set(self.rows)]

    def digest(self) -> str:
        """A digest of the code that its figures depend on."""
        if not self.code:
            return code_digest()
        root, digest = ROOT / "src" / "migrator", hashlib.sha256()
        for part in self.code:
            for file in sorted((root / part).rglob("*.py")):
                digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
        return digest.hexdigest()[:16]

    def last_line(self, folder: Path) -> str:
        """What the page says of its rows."""
        if not all((folder / file).exists() for file in self.rows) or not self.rows:
            return f"The rows of this page were not kept. {self.note}".strip()
        recorded = provenance(folder).get(self.name, {})
        links = ", ".join(f"[{file}]({file})" for file in self.rows)
        others = [f"[{other.name}]({other.name}.md)" for other in self.measured_by()]
        if others:
            return f"Rows: {links}; measured as {' and '.join(others)} say."
        parts = [f"`{recorded['command']}`"] if recorded.get("command") else []
        for name in ("commit", "code"):
            value = recorded.get(name)
            parts.append(f"{name} not recorded" if value is None else f"{name} {value}")
        parts += [recorded["date"]] if recorded.get("date") else []
        parts += [f"{recorded['took_s']:.0f} s"] if recorded.get("took_s") else []
        return f"Rows: {links}; measured with {', '.join(parts)}."

    def differences(self, folder: Path) -> Iterator[str]:
        """In what the page differs from its rows."""
        if self.age(folder) is Age.NOT_MEASURED:
            return
        text = (folder / f"{self.name}.md").read_text(encoding="utf-8")
        kept = all((folder / file).exists() for file in self.rows)
        if kept and self.whole is not None and text != self.text(folder):
            yield f"{self.name}.md is not what its rows give; `--render` writes it"
        lines = text.splitlines()
        if kept and self.tables is not None:
            for line in self.tables(folder):
                if line not in lines:
                    yield f"{self.name}.md has no line {line}"
        if self.last_line(folder) not in lines:
            yield f"{self.name}.md does not say what it was measured with; `--render` writes it"
        recorded = provenance(folder).get(self.name, {}).get("rows")
        if kept and recorded is not None and recorded != rows_digest(folder, self.rows):
            yield f"{self.name}: its rows are not those in {PROVENANCE}; `--record` them"

    def text(self, folder: Path) -> str:
        """The page with its last line."""
        if self.whole is not None and all((folder / file).exists() for file in self.rows):
            return f"{self.whole(folder).rstrip()}\n\n{self.last_line(folder)}\n"
        lines = (folder / f"{self.name}.md").read_text(encoding="utf-8").splitlines()
        if lines and lines[-1].startswith(("Rows: ", "The rows of this page were not kept.")):
            lines = lines[:-1]
        body = "\n".join(lines).rstrip()
        return f"{body}\n\n{self.last_line(folder)}\n"


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def _configurations(folder: Path) -> str:
    file = folder / "retraining_configurations.json"
    courses = {key: one for key, one in read_courses(file).items() if len(one["rows"]) > 1}
    return configurations_page(courses, [file.name])


def _grid(folder: Path) -> list[str]:
    rows = [live_grid.Row(**row) for row in _read(folder, "live-grid.json")["rows"]]
    tables = (live_grid.results(rows, lending) for lending in ("own", "all"))
    return [line for results in tables for line in live_grid.page_table(results)]


def _protocol(part: Part) -> Page:
    """A part of the evaluation protocol; all parts keep their runs in one file."""
    rows = f"{part}.json"
    flag = () if part is Part.HEADLINE else (f"--{part}",)
    return Page(
        part.value,
        (rows,),
        lambda folder: headline_page.page(part, _read(folder, rows)),
        command=(
            *(*_PYTHON, "benchmarks.headline", *flag, "--keep", "{work}/headline.jsonl"),
            *("--out", "{work}"),
        ),
    )


PAGES = (
    *map(_protocol, Part),
    Page(
        "paper-figures",
        ("paper_figures.json",),
        lambda folder: paper_figures.text(_read(folder, "paper_figures.json")),
        command=(*_PYTHON, "benchmarks.paper_figures", "--work", "{work}", "--out", "{work}"),
    ),
    Page(
        "planner",
        _PLANNER,
        lambda folder: planner_page(read_records(folder, list(STUDIES))),
        command=(*_PYTHON, "benchmarks.planner", "--out", "{work}"),
        code=("core", "planning"),
    ),
    Page(
        "retraining_configurations",
        ("retraining_configurations.json",),
        _configurations,
        command=(
            *(*_PYTHON, "benchmarks.retraining_configurations"),
            *("--out", "{work}/retraining_configurations.json"),
        ),
        code=("core", "learn"),
    ),
    Page(
        "left_out",
        (left_out.FILE,),
        lambda folder: left_out.page(left_out.read(folder / left_out.FILE)),
        code=("core", "learn"),
    ),
    Page(
        "configurations",
        ("configurations.json",),
        lambda folder: configurations.text(_read(folder, "configurations.json")),
        command=(
            *(*_PYTHON, "benchmarks.configurations", "--windows", "4", "--seeds", "0"),
            *("--keep", "{work}/configurations.jsonl", "--out", "{work}"),
        ),
    ),
    Page(
        "configuration_times",
        ("configuration_times.json",),
        lambda folder: configuration_times.text(_read(folder, "configuration_times.json")),
        command=(*_PYTHON, "benchmarks.configuration_times", "--out", "{work}"),
        code=("core", "planning"),
    ),
    Page(
        "floors",
        ("floors.json",),
        lambda folder: floors.text(_read(folder, "floors.json")),
        command=(*_PYTHON, "benchmarks.floors", "--out", "{work}"),
    ),
    Page(
        "survivors_gap",
        ("survivors_gap.json",),
        tables=lambda folder: survivors_gap.page_table(_read(folder, "survivors_gap.json")["rows"]),
        command=(*_PYTHON, "benchmarks.survivors_gap", "--out", "{work}"),
        code=("core", "planning"),
    ),
    Page(
        "settings",
        ("settings.json",),
        tables=lambda folder: settings.page_table(_read(folder, "settings.json")["rows"]),
        command=(
            *(*_PYTHON, "benchmarks.settings", "--keep", "{work}/settings.jsonl"),
            *("--out", "{work}"),
        ),
    ),
    Page(
        "replanning",
        ("replanning.json",),
        tables=lambda folder: replanning.page_table(_read(folder, "replanning.json")),
        command=(
            *(*_PYTHON, "benchmarks.replanning", "--load", "0.8", "--windows", "10"),
            *("--json", "{work}/replanning.json"),
        ),
    ),
    Page(
        "forecasters",
        ("forecasters.json",),
        lambda folder: forecasters_page.page(_read(folder, "forecasters.json")),
        command=(
            *(*_PYTHON, "benchmarks.forecasters", "--keep", "{work}/forecasters"),
            *("--out", "{work}"),
        ),
    ),
    Page(
        "live-grid",
        ("live-grid.json",),
        tables=_grid,
        command=(
            *(*_PYTHON, "benchmarks.live_grid", "--keep", "{work}/live-grid.jsonl"),
            *("--out", "{work}/live-grid.json"),
        ),
    ),
    Page(
        "published-weights",
        ("h200-published.json",),
        lambda folder: recovery_page.page(_read(folder, "h200-published.json")),
        code=("core", "learn"),
    ),
    Page(
        "attack",
        ("attack.json",),
        command=(*_PYTHON, "benchmarks.attack", "--out", "{work}"),
        code=("io", "serving", "live"),
    ),
    Page(
        "live",
        (
            *("h200-live-comparison.json", "h200-live-configurations.json"),
            *("h200-simulated.json", "h200-three-tenants.json", "h200-five-tenants.json"),
        ),
        tables=lambda folder: [
            *live_configurations.table(_read(folder, "h200-live-configurations.json")["runs"]),
            *live_table.table(_read(folder, "h200-three-tenants.json")["rows"]),
            *live_table.table(_read(folder, "h200-five-tenants.json")["rows"]),
        ],
        code=("control", "live"),
    ),
    Page("redesign", note="It counts checkouts of this repository."),
)
"""Every page. Those with rows but neither `whole` nor `tables` were composed by hand."""


def provenance(folder: Path) -> dict[str, Json]:
    """What the rows of each page were measured with."""
    path = folder / PROVENANCE
    read: dict[str, Json] = _read(folder, PROVENANCE) if path.exists() else {}
    return read


def rows_digest(folder: Path, files: Sequence[str]) -> str:
    """A digest of rows."""
    digest = hashlib.sha256()
    for file in files:
        digest.update((folder / file).read_bytes())
    return digest.hexdigest()[:16]


def record(page: Page, folder: Path, command: str, took_s: float | None) -> None:
    """Save what the rows that are there were just measured with."""
    recorded = provenance(folder)
    recorded[page.name] = {
        "command": command,
        "commit": commit(),
        "code": page.digest(),
        "date": datetime.now(UTC).date().isoformat(),
        "took_s": took_s,
        "rows": rows_digest(folder, page.rows),
    }
    text = json.dumps(dict(sorted(recorded.items())), indent=1) + "\n"
    (folder / PROVENANCE).write_text(text, encoding="utf-8")


def commit() -> str | None:
    """The commit of this checkout, with a + if files of src or benchmarks differ from it."""
    try:
        said = [
            subprocess.run(
                ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
            ).stdout.strip()
            for arguments in (
                ("rev-parse", "--short", "HEAD"),
                ("status", "--porcelain", "src", "benchmarks"),
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return said[0] + ("+" if said[1] else "")


def run(page: Page, folder: Path) -> bool:
    """Measure a page's rows again and write the page; return whether that succeeded."""
    work = WORK / page.digest()
    work.mkdir(parents=True, exist_ok=True)
    command = [part.format(work=work) for part in page.command]
    shown = shlex.join(word.format(work="FOLDER") for word in page.command)
    spent = work / f"{page.name}.seconds"
    began = time.monotonic()
    done = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, check=False)
    took_s = time.monotonic() - began + (float(spent.read_text()) if spent.exists() else 0.0)
    spent.write_text(f"{took_s:.3f}")
    if done.returncode:
        print(f"{page.name}: ended with {done.returncode} after {took_s:.0f} s", flush=True)
        return False
    for file in (*page.rows, *page.more):
        shutil.copyfile(work / file, folder / file)
    record(page, folder, shown, round(took_s, 3))
    spent.unlink()
    print(f"{page.name}: {took_s:.0f} s", flush=True)
    return True


def render(folder: Path) -> None:
    """Write every page that was measured, or its last line."""
    for page in PAGES:
        if page.age(folder) is not Age.NOT_MEASURED:
            text = page.text(folder)
            (folder / f"{page.name}.md").write_text(text, encoding="utf-8")


def listing(folder: Path) -> Iterator[str]:
    """A line per page."""
    yield f"{'page':<26}{'rows':<21}{'figures':<18}{'commit':<12}{'seconds':>8}"
    of_pages: Mapping[str, Json] = provenance(folder)
    for page in PAGES:
        recorded, age = of_pages.get(page.name, {}), page.age(folder)
        made = "by hand" if page.tables is None else "tables from rows"
        made = "rendered" if page.whole is not None else made
        took_s = recorded.get("took_s")
        yield (
            f"{page.name:<26}{age:<21}{made if page.rows else '-':<18}"
            f"{recorded.get('commit') or '-':<12}{'-' if took_s is None else f'{took_s:.0f}':>8}"
        )


def main() -> int:
    """List, check, render, run or record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("pages", nargs="*", help="default: all")
    add("--check", action="store_true", help="exit 1 if a page differs from its rows")
    add("--render", action="store_true", help="write the pages from the rows")
    add("--run", action="store_true", help="measure again what is not of this code")
    add("--record", action="store_true", help="the rows of PAGE were just measured")
    add("--took-s", type=float, help="with --record")
    asked = parser.parse_args()
    unknown = set(asked.pages) - {page.name for page in PAGES}
    if unknown:
        parser.error(f"no page is called {min(unknown)}; the list has all names")
    chosen = [page for page in PAGES if not asked.pages or page.name in asked.pages]
    failed = False
    for page in chosen if asked.run else ():
        if page.command and page.age(RESULTS) is not Age.SAME:
            failed |= not run(page, RESULTS)
    if asked.record:
        for page in chosen if asked.pages else ():
            shown = shlex.join(word.format(work="FOLDER") for word in page.command)
            record(page, RESULTS, shown, asked.took_s)
    if asked.render or asked.run or asked.record:
        render(RESULTS)
    if asked.check:
        differing = [line for page in chosen for line in page.differences(RESULTS)]
        print("\n".join(differing or ["every page has the figures of its rows"]))
        return 1 if differing else 0
    print("\n".join(listing(RESULTS)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
