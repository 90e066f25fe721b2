"""The commands of the README, the docs and the printed examples, run as a reader types them.

All run in one folder, each page after the other, so that a file which a command writes is there
for the next one. Those that need more than a machine without a GPU are named with the reason.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from support.gpu_cli import migrator

ROOT = Path(__file__).parents[2]
PRINTED = ("quickstart", "live", "cluster", "layout", "policy", "model")
COMMENT = re.compile(r"\s+# .*")

ELSEWHERE = {
    r"pip (un)?install|docker |^ray |^export |^make |^python3 -m venv": (
        "installs, or needs a network; see tests/deploy"
    ),
    r"^(tar|rm|find|systemctl) |^SITE=": "the reader's own files and services",
    r"migrator (serve|load|dashboard|gateway|status|windows|report)\b": "runs until it is "
    "stopped, or needs such a run; see tests/cli/test_bring_your_model.py and tests/live",
    r"migrator cluster (drain|undrain|stop)": "needs Ray; see tests/cluster/fleet",
    r"migrator (simulate|cluster plan) (examples/)?cluster.yaml --[wsoc]\w+": (
        "takes half a minute; see tests/cluster/placement and tests/cli/test_cluster_verbs.py"
    ),
    r"migrator (re|pre)train (nc-cifar-10|nc-20-newsgroups|texts)": "needs a data set or weights",
    r"MIGRATOR_DATA=|python -m benchmarks|migrator forecast train|--forecaster informer:": "needs "
    "traces; see tests/reproduce and tests/forecast",
    r"migrator (advise|simulate my.yaml --policy migrator-once|reproduce (all|map))": (
        "takes minutes; see tests/advise, tests/cli/test_cli_runs.py and tests/reproduce"
    ),
    r"migrator compare (my|(examples/)?quick)": "see tests/cli/test_cli_runs.py and tests/cli",
    r"migrator (profile my.yaml --interference|gpu measure)": "needs a GPU",
}
"""What does not run here, and why."""
CODES = {("docs/gpu.md", "migrator gpu assert layout.yaml"): 3}
"""Exit codes that the page announces: nothing has been applied."""


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The language and the lines of every fenced block."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[str]:
    """Commands of a page without their comments; of blocks that are not `sh` only `migrator`."""
    for language, block in blocks(text):
        for line in block.splitlines():
            command = COMMENT.sub("", line).strip()
            first = command.split(" ")[0]
            if first == "migrator" or (language == "sh" and command):
                yield command


def pages() -> dict[str, list[str]]:
    """Commands by page; those of bring-your-model.md have a test of their own."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    by_page = {
        str(file.relative_to(ROOT)): list(commands(file.read_text("utf-8"))) for file in files
    }
    for name in PRINTED:
        shown = migrator("example", name).out
        lines = re.findall(r"^(?:#| ) +(migrator .*)$", shown, re.MULTILINE)
        by_page[f"example {name}"] = [COMMENT.sub("", line).strip() for line in lines]
    del by_page["docs/bring-your-model.md"]
    return {name: lines for name, lines in by_page.items() if lines}


def is_elsewhere(command: str) -> bool:
    return any(re.search(place, command) for place in ELSEWHERE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pages say the reader has: the examples under the names they use."""
    made = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", made / "examples")
    names = {"quickstart.yaml": "quickstart", "my.yaml": "quickstart", "cluster.yaml": "cluster"}
    names |= {"layout.yaml": "layout", "my_policy.py": "policy", "my_model.py": "model"}
    for file, example in names.items():
        (made / file).write_text(migrator("example", example).out, encoding="utf-8")
    for file in ("quickstart.yaml", "my.yaml", "cluster.yaml"):
        shorten(made / file)
    for file in ("quickstart.yaml", "cluster.yaml"):
        shorten(made / "examples" / file)
    for file in ("a.json", "b.json"):
        shutil.copy(ROOT / "examples" / "live.profiles.json", made / file)
    return made


PAGES = pages()
DONE: set[str] = set()
"""Simulations that have run: some stand on several pages."""


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_STATE", str(folder / "state"))
    monkeypatch.syspath_prepend(str(folder))
    for command in PAGES[page]:
        if is_elsewhere(command) or command in DONE:
            continue
        run(command, folder, CODES.get((page, command), 0))
        if command.startswith("migrator simulate"):
            DONE.add(command)


def run(command: str, folder: Path, code: int = 0) -> None:
    """One command, with its output in the file that it names."""
    typed, _, file = command.partition(" > ")
    arguments = shlex.split(typed)
    assert arguments[0] == "migrator", f"{command}: say in ELSEWHERE why it does not run"
    with chdir(folder):
        done = migrator(*arguments[1:])
    if file:
        (folder / file.strip()).write_text(done.out, encoding="utf-8")
        shorten(folder / file.strip())
    assert done.code == code, f"{command}: {done.out[-1000:]}{done.err[-1000:]}"


def shorten(file: Path) -> None:
    """One window of 100 s instead of those that a reader waits for."""
    text = re.sub(r"^windows: \d+", "windows: 1", file.read_text("utf-8"), flags=re.MULTILINE)
    file.write_text(re.sub(r"^window_s: 200", "window_s: 100", text, flags=re.MULTILINE), "utf-8")


def test_what_does_not_run_is_on_some_page() -> None:
    every = [line for lines in PAGES.values() for line in lines]
    for pattern in ELSEWHERE:
        assert any(re.search(pattern, command) for command in every), pattern
    run_here = [command for command in every if not is_elsewhere(command)]
    assert len(run_here) >= 30, f"{len(run_here)} of {len(every)}"
