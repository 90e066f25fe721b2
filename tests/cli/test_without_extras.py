"""Every verb where only the base dependencies are installed, as after `pip install migrator`.

Packages of the base dependencies are linked into a folder of their own, and Python starts without
its site-packages. Verbs are taken from the app, so that a new one is covered.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement

from migrator.cli import app

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOME_EXTRAS = ("ray", "msgspec", "torch", "plotly", "matplotlib", "gurobipy", "starlette")
LIMIT_S = 120

NEEDS = {
    "dashboard": "serve",
    "gateway --map map.json": "serve",
    "gateway --cluster auto": "cluster",
    "load live.yaml": "serve",
    "serve live.yaml": "serve",
    "serve live_cluster.yaml --cluster auto": "cluster",
    "status --cluster auto": "cluster",
    "cluster stop --yes": "cluster",
    "cluster drain g0 --yes": "cluster",
    "cluster undrain g0": "cluster",
    "cluster plan live_cluster.yaml --ray auto": "cluster",
    "models": "learn",
    "retrain nc-synthetic --model small-cnn": "learn",
    "profile live.yaml --driver cpu": "learn",
    "forecast train trace.csv --out model": "forecast",
    "simulate quickstart.yaml --windows 1 --forecaster informer": "forecast",
    "simulate quickstart.yaml --windows 1 --report run.html": "figures",
    "compare quickstart.yaml --figure compare.png": "figures",
    "plan window.json --figure plan.html": "figures",
    "plan window.json --figure plan.png": "figures",
    "plan window.json --solver ilp --backend gurobi": "gurobi",
    "report --out report.html --state state": "figures",
    "reproduce --out page.html": "figures",
}
"""Commands that need an extra, and which one they name."""

WORK = {
    "plan window.json",
    "check window.json plan.json",
    "simulate quickstart.yaml --windows 1 --policy equal-mig",
    "compare quickstart.yaml --windows 1 --seeds 1 --policies equal-mig --processes 1",
    "reproduce --list",
    "profile --compare profiles.json profiles.json",
    "forecast evaluate trace.csv --forecasters last-mean --window-s 20",
    "cluster plan live_cluster.yaml --jobs 1",
    "status --state state",
    "windows --state state",
    "gpu apply layout.yaml --driver emulated --board A100-40GB",
    "gpu assert layout.yaml --driver emulated --board A100-40GB",
    "gpu clear --driver emulated",
    "top --once --state state",
    *(f"gpu {verb} --driver emulated" for verb in ("list", "show", "export", "doctor")),
}
"""Commands that work without any; so does every verb that takes no arguments and is not named."""

NO_DAEMON = {
    *(f"admin {verb} --yes --state state" for verb in ("pause", "resume", "replan")),
    *(f"admin {verb} photos --yes --state state" for verb in ("roll-back", "drain", "undrain")),
}
"""Commands that speak to a daemon, of which there is none here."""


def requirements(given: Iterable[str]) -> set[str]:
    """The distributions that these requirements install, with those that they need in turn."""
    found: dict[tuple[str, frozenset[str]], None] = {}
    todo = [Requirement(each) for each in given]
    while todo:
        one = todo.pop()
        key = (one.name, frozenset(one.extras))
        if key in found:
            continue
        found[key] = None
        try:
            needed = distribution(one.name).requires or []
        except PackageNotFoundError:  # of another platform
            continue
        for each in map(Requirement, needed):
            wanted = ({"extra": extra} for extra in (*one.extras, ""))
            if each.marker is None or any(map(each.marker.evaluate, wanted)):
                todo.append(each)
    return {name for name, _ in found}


def verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, each in group.commands.items():
        known = (*path, str(name))
        if hasattr(each, "commands"):
            yield from verbs(each, known)
        else:
            yield " ".join(known)


VERBS = sorted(verbs(typer.main.get_command(app)))
COMMANDS = sorted({*NEEDS, *WORK, *NO_DAEMON})
UNNAMED = [
    verb for verb in VERBS if not any(f"{each} ".startswith(f"{verb} ") for each in COMMANDS)
]


class Bare:
    """A folder to work in, and Python with the base dependencies alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, site = folder, folder / "site"
        site.mkdir()
        for name in requirements(PROJECT["dependencies"]):
            try:
                found = distribution(name)
            except PackageNotFoundError:
                continue
            for top in {each.parts[0] for each in found.files or []} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(str(found.locate_file(top)))
        paths = os.pathsep.join([str(site), str(ROOT / "src")])
        self._variables = {**os.environ, "PYTHONPATH": paths, "HOME": str(folder)}
        for each in ("STATE", "DATA", "CONFIG"):
            self._variables[f"XDG_{each}_HOME"] = str(folder / each.lower())
        self._variables.pop("RAY_ADDRESS", None)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", "-P", *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=False,
        )

    def migrator(self, command: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "migrator", *command.split())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    made = Bare(tmp_path_factory.mktemp("bare"))
    for each in (*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*.json")):
        (made.folder / each.name).symlink_to(each)
    (made.folder / "profiles.json").symlink_to(EXAMPLES / "live.profiles.json")
    (made.folder / "layout.yaml").symlink_to(EXAMPLES / "layouts" / "small-services.yaml")
    counts = "\n".join(f"{second},{5 + second % 7}" for second in range(400))
    (made.folder / "trace.csv").write_text(f"second,count\n{counts}\n")
    (made.folder / "plan.json").write_text(made.migrator("plan window.json --json").stdout)
    records = made.folder / "state" / "live" / "quickstart" / "records.db"
    records.parent.mkdir(parents=True)
    command = f"simulate quickstart.yaml --windows 1 --policy equal-mig --records {records}"
    done = made.migrator(command)
    assert done.returncode == 0, done.stderr
    return made


def test_nothing_of_an_extra_is_installed_there(bare: Bare) -> None:
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    done = bare.python("-c", code, *SOME_EXTRAS, "numpy")
    assert done.stdout.strip() == "['numpy']", done.stderr


@pytest.mark.parametrize("command", sorted(NEEDS))
def test_the_extra_to_install_is_named_in_one_sentence(bare: Bare, command: str) -> None:
    done = bare.migrator(command)
    assert "Traceback" not in done.stderr
    assert f"pip install 'migrator[{NEEDS[command]}]'" in done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize("command", [*sorted(WORK), *UNNAMED])
def test_what_needs_no_extra_works(bare: Bare, command: str) -> None:
    """A verb that takes arguments, and is neither in NEEDS nor in WORK, fails here."""
    done = bare.migrator(command)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", sorted(NO_DAEMON))
def test_what_needs_a_daemon_says_that_there_is_none(bare: Bare, command: str) -> None:
    done = bare.migrator(command)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "pip install" not in done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_tables_name_verbs_that_there_are() -> None:
    assert not [
        each for each in COMMANDS if not any(f"{each} ".startswith(f"{verb} ") for verb in VERBS)
    ]
