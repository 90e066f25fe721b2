"""Every verb where extras are missing: all of them, as after `pip install migrator-gpu`, or one.

The packages to be installed are linked into a folder of their own, and Python starts without its
site-packages. Verbs are taken from the app, so that a new one is covered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement
from support.gpu_cli import Answer
from support.installed import link_packages, required

from migrator.cli import app

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOME_EXTRAS = ("ray", "msgspec", "torch", "plotly", "matplotlib", "gurobipy", "starlette")
LIMIT_S = 600

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
    "simulate quickstart.yaml --windows 1 --forecaster informer:model": "forecast",
    "simulate quickstart.yaml --forecaster migrator.forecast.auto_ets:AutoEts": "statsforecast",
    "simulate quickstart.yaml --windows 1 --report run.html": "figures",
    "compare quickstart.yaml --figure compare.png": "figures",
    "advise quickstart.yaml --ray auto": "cluster",
    "plan window.yaml --figure plan.html": "figures",
    "plan window.yaml --figure plan.png": "figures",
    "plan window.yaml --solver ilp --backend gurobi": "gurobi",
    "report --out report.html --state state": "figures",
    "reproduce --out page.html": "figures",
}
"""Commands that need an extra, and which one they name."""

WORK = {
    "plan window.yaml",
    "validate quickstart.yaml",
    "check window.yaml plan.json",
    "simulate quickstart.yaml --windows 1 --policy equal-mig",
    "compare quickstart.yaml --windows 1 --seeds 1 --policies equal-mig --processes 1",
    "reproduce --list",
    "profile --compare profiles.json profiles.json",
    "forecast evaluate trace.csv --forecasters last-mean --window-s 20",
    "cluster plan live_cluster.yaml --jobs 1",
    "status --state state",
    "windows --state state",
    "gpu apply layout.yaml --driver emulated --board A100-40GB",
    "gpu measure resnet-50 --driver cpu --board A100-40GB --dry-run",
    "gpu assert layout.yaml --driver emulated --board A100-40GB",
    "gpu clear --driver emulated",
    *(f"gpu {verb} --driver emulated" for verb in ("list", "show", "export", "doctor")),
}
"""Commands that work without any; so does every verb that takes no arguments and is not named."""

NEEDS_BESIDES_OTHERS: dict[tuple[str, ...], dict[str, str]] = {
    ("learn", "serve"): {
        "serve live.yaml --grpc-port 0": "grpc",
        "gateway --map map.json --grpc-port 0": "grpc",
        "retrain nc-synthetic --model timm:resnet18": "timm",
    },
    ("learn", "timm"): {"retrain nc-synthetic --model efficientnet-lite0": "pretrained"},
}
"""Extras that are installed -> commands that need another one as well, which they name."""

NO_DAEMON = {
    *(f"admin {verb} --yes --state state" for verb in ("pause", "resume", "replan")),
    *(
        f"admin {verb} photos --yes --state state"
        for verb in ("roll-back", "drain", "undrain", "retrain", "load", "remove")
    ),
    "admin add tenant.yaml --yes --state state",
}
"""Commands that speak to a daemon, of which there is none here."""


def verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, command in group.commands.items():
        verb = (*path, str(name))
        if hasattr(command, "commands"):
            yield from verbs(command, verb)
        else:
            yield " ".join(verb)


VERBS = sorted(verbs(typer.main.get_command(app)))
COMMANDS = sorted({*NEEDS, *WORK, *NO_DAEMON})
UNNAMED = [
    verb for verb in VERBS if not any(f"{command} ".startswith(f"{verb} ") for command in COMMANDS)
]


RUN_ALL = """
import contextlib, io, json, sys, traceback
from migrator.cli.app import main

results = {}
for command in json.load(sys.stdin):
    sys.argv, out, err, code = ["migrator", *command.split()], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as done:
            code = done.code
        except BaseException:
            traceback.print_exc()
    results[command] = code, out.getvalue(), err.getvalue()
    if command.startswith("plan window.yaml --json"):
        open("plan.json", "w").write(out.getvalue())
print(json.dumps(results))
"""
"""Runs commands one after the other in one process."""
RECORDS = "state/live/quickstart/records.db"
WRITE_RECORDS = f"simulate quickstart.yaml --windows 1 --policy equal-mig --records {RECORDS}"
FIRST = ("plan window.yaml --json", WRITE_RECORDS)
"""What other commands read is written by these."""


class Environment:
    """A folder with examples, and a Python that has the base dependencies and these extras."""

    def __init__(self, folder: Path, extras: Iterable[str] = ()) -> None:
        self._folder = folder
        site = folder / "site"
        site.mkdir()
        listed = [*PROJECT["dependencies"]]
        for extra in extras:
            listed += PROJECT["optional-dependencies"][extra]
        plain = [text for text in listed if Requirement(text).name != PROJECT["name"]]
        link_packages(site, required(plain))
        for example in (*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*.json")):
            (folder / example.name).symlink_to(example)
        (folder / "profiles.json").symlink_to(EXAMPLES / "live.profiles.json")
        (folder / "layout.yaml").symlink_to(EXAMPLES / "layouts" / "small-services.yaml")
        counts = "\n".join(f"{second},{5 + second % 7}" for second in range(400))
        (folder / "tenant.yaml").write_text("name: photos\n")
        (folder / "trace.csv").write_text(f"second,count\n{counts}\n")
        (folder / RECORDS).parent.mkdir(parents=True)
        homes = {f"XDG_{home}_HOME": str(folder / home) for home in ("STATE", "DATA", "CONFIG")}
        paths = os.pathsep.join([str(site), str(ROOT / "src")])
        self._variables = {**os.environ, **homes, "PYTHONPATH": paths, "HOME": str(folder)}
        self._variables.pop("RAY_ADDRESS", None)

    def python(self, *arguments: str, given: str = "") -> str:
        """What code prints, with `arguments[0]` as the code."""
        done = subprocess.run(
            [sys.executable, "-S", "-P", "-c", *arguments],
            capture_output=True,
            text=True,
            cwd=self._folder,
            env=self._variables,
            input=given,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, commands: Iterable[str]) -> dict[str, Answer]:
        """Command -> how it ended."""
        printed = self.python(RUN_ALL, given=json.dumps(list(commands)))
        parsed_json = json.loads(printed.splitlines()[-1])
        return {command: Answer(*done) for command, done in parsed_json.items()}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Command -> how it ended where nothing but the base dependencies is installed."""
    environment = Environment(tmp_path_factory.mktemp("bare"))
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    assert environment.python(code, *SOME_EXTRAS, "numpy").strip() == "['numpy']"
    return environment.run([*FIRST, *COMMANDS, *UNNAMED])


@pytest.mark.parametrize("command", sorted(NEEDS))
def test_the_extra_to_install_is_named_in_one_sentence(
    bare: dict[str, Answer], command: str
) -> None:
    done = bare[command]
    assert "Traceback" not in done.err
    assert f"pip install 'migrator-gpu[{NEEDS[command]}]'" in done.err.splitlines()[-1]
    assert done.code == 2, done.err


@pytest.mark.parametrize("installed", NEEDS_BESIDES_OTHERS, ids="+".join)
def test_an_extra_that_alone_is_missing_is_named(
    tmp_path: Path, installed: tuple[str, ...]
) -> None:
    named = NEEDS_BESIDES_OTHERS[installed]
    for command, done in Environment(tmp_path, installed).run(named).items():
        assert "Traceback" not in done.err, done.err
        assert f"pip install 'migrator-gpu[{named[command]}]'" in done.err.splitlines()[-1], done
        assert done.code == 2, done.err


@pytest.mark.parametrize("command", [*FIRST, *sorted(WORK), *UNNAMED])
def test_what_needs_no_extra_works(bare: dict[str, Answer], command: str) -> None:
    """A verb that takes arguments, and is neither in NEEDS nor in WORK, fails here."""
    assert bare[command].code == 0, bare[command].err
    assert "Traceback" not in bare[command].err


@pytest.mark.parametrize("command", sorted(NO_DAEMON))
def test_what_needs_a_daemon_says_that_there_is_none(bare: dict[str, Answer], command: str) -> None:
    done = bare[command]
    assert done.code in (1, 2)
    assert "pip install" not in done.err
    assert done.err.startswith("error: "), done.err
    assert len(done.err.splitlines()) == 1


def test_the_tables_name_verbs_that_there_are() -> None:
    assert not [
        command
        for command in COMMANDS
        if not any(f"{command} ".startswith(f"{verb} ") for verb in VERBS)
    ]
