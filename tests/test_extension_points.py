"""docs/structure.md: what it lists is there, and each new thing is added through one file.

All files are added to one copy of the package and used through verbs.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from migrator.core.problem import Charge
from migrator.planning.planners import ready
from migrator.simulation import tenant

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "migrator"
PAGE = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")

SCENARIO = """
version: 1
gpu: H200-141GB
window_s: 20
windows: 1
tenants:
  - {name: photos, model: resnet-50, slo_ms: 100, arrivals: {generator: azure, mean_rps: 900}}
  - {name: mail, model: bert-base, slo_ms: 100, arrivals: {generator: alibaba, mean_rps: 900}}
"""
TRACED = """
version: 1
gpu: H200-141GB
window_s: 20
windows: 1
tenants:
  - {name: photos, model: resnet-50, slo_ms: 100, arrivals: {trace: day.txt, offset_s: 20}}
"""

POLICY = '''
"""A fixed number of GPCs for each tenant."""

from migrator.policies.layouts import Wish, best_allocation
from migrator.policies.policy import Decision, Observation, Policy
from migrator.core.problem import Kind, Task


class Equal(Policy):
    """The same instance for every tenant."""

    def __init__(self, gpcs: int) -> None:
        self.gpcs = gpcs
        self.name = f"each-{gpcs}"
        self.summary = f"{gpcs} GPCs for every tenant"

    def decide(self, observation: Observation) -> Decision:
        wishes = [
            Wish(Task(view.name, Kind.INFERENCE), ((self.gpcs,),)) for view in observation.tenants
        ]
        return Decision((best_allocation(observation, wishes, lambda _: ()),))


POLICIES = (Equal(1), Equal(3))
'''
OWN_POLICY = """
import migrator


@migrator.policy()
def by_forecast(observation):
    assert all((tenant.ahead == 123).all() for tenant in observation.tenants)
    return {tenant.name: 3 for tenant in observation.tenants}
"""
FORECASTER = '''
"""Always the same number."""

import numpy as np


class Constant:
    name = "constant"
    summary = "123 requests in every slot"

    def ahead(self, history, slots, window_slots):
        return np.full((1, slots), 123.0)


FORECASTERS = (Constant(),)
'''
TRACE_FORMAT = '''
"""One line per second: as many bars as requests."""

import numpy as np

from migrator.core.scenario import Trace
from migrator.workload.traces.formats import TraceFormat


def load(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return Trace(path.stem, np.array([line.count("|") for line in lines], dtype=np.int64))


FORMATS = (TraceFormat("bars", lambda lines: set(lines[0]) == {"|"}, load),)
'''
MODEL = """

class Tiny(SmallCnn):
    name = "tiny-cnn"


MODELS = (*MODELS, Tiny)
"""
BENCHMARK = '''
"""Pictures of one grey per class."""

import numpy as np

from migrator.learn.benchmarks.benchmark import Benchmark, Material
from migrator.learn.model import Modality
from migrator.learn.samples import Samples


def samples(of_a_class):
    labels = np.repeat(np.arange(4), of_a_class)
    pictures = np.broadcast_to((60 * labels)[:, None, None, None], (len(labels), 3, 16, 16))
    return Samples(pictures.astype(np.uint8), labels, labels // 2)


class Greys(Benchmark):
    def load(self, origin):
        return Material(samples(8), samples(4), "four greys")


BENCHMARKS = (Greys("greys", 2, 2, Modality.IMAGES, "four greys, two at a time"),)
'''
DRIVER = '''
"""An emulated board that says that it is another."""

from contextlib import nullcontext

from migrator.core.catalogue import board
from migrator.gpu.drivers.base import DriverEntry
from migrator.gpu.drivers.virtual_board import EmulatedDriver


class Pretended(EmulatedDriver):
    name = "pretended"


def opened(index, options):
    return nullcontext(Pretended(options.state, index, board("A30-24GB"), pace=0))


DRIVERS = (DriverEntry("pretended", opened, lambda state: (0,)),)
'''
LAYOUT = """
version: 1
instances:
  - {profile: 2g.12gb, start: 0}
"""
VERB = '''

@app.command()
def greet(name: str) -> None:
    """Say hello."""
    print(f"hello {name}")
'''


RUN_ALL = """
import contextlib, io, json, sys, traceback
from migrator.cli.app import main

printed = {}
for command in sys.argv[1:]:
    sys.argv, out, code = ["migrator", *command.split()], io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try:
            main()
        except SystemExit as done:
            code = done.code
    printed[command] = f"exit code {code}" if code else out.getvalue()
print(json.dumps(printed))
"""
"""Runs commands one after the other in one process."""

COMMANDS = {
    "policy": "simulate two.yaml --policy each-1,each-3 --json",
    "forecaster": "simulate two.yaml --policy mine:by_forecast --forecaster constant --json",
    "trace format": "simulate traced.yaml --policy equal-mig --json",
    "model": "retrain nc-synthetic --windows 1 --epochs 1 --samples 8 --json --model tiny-cnn",
    "benchmark": "retrain greys --model mine:Means --epochs 1 --json",
    "GPU driver": "gpu apply layout.yaml --driver pretended",
    "board": "boards A31-24GB",
    "verb": "greet you",
}
"""What is added -> a command that uses it."""


def add(copy: Path, name: str, text: str) -> None:
    """A new module in the package; an existing one gets the text at its end."""
    with (copy / name).open("a", encoding="utf-8") as file:
        file.write(text)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What every command prints, of a copy of the package in which all of it was added."""
    ready(Charge.SURVIVORS)  # needs the kernels of the other charge too
    tenant.ready()
    folder = tmp_path_factory.mktemp("folder")
    copy = tmp_path_factory.mktemp("copied") / "migrator"
    shutil.copytree(SOURCE, copy)  # with its compiled kernels
    add(copy, "policies/each.py", POLICY)
    add(copy, "forecast/constant.py", FORECASTER)
    add(copy, "workload/traces/bars.py", TRACE_FORMAT)
    add(copy, "learn/zoo.py", MODEL)
    add(copy, "learn/benchmarks/greys.py", BENCHMARK)
    add(copy, "gpu/drivers/pretended.py", DRIVER)
    add(copy, "cli/plan_verbs.py", VERB)
    path = copy / "core" / "boards.json"
    catalogue = json.loads(path.read_text(encoding="utf-8"))
    catalogue["boards"]["A31-24GB"] = catalogue["boards"]["A30-24GB"]
    path.write_text(json.dumps(catalogue), encoding="utf-8")
    own = (ROOT / "tests" / "support" / "means_model.py").read_text(encoding="utf-8")
    files = {"two.yaml": SCENARIO, "traced.yaml": TRACED, "layout.yaml": LAYOUT}
    files |= {"day.txt": "|||||\n" * 40, "mine.py": own + OWN_POLICY}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    paths = (copy.parent, folder, ROOT / "tests")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "MIGRATOR_STATE": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *COMMANDS.values(), "--help"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by_command = json.loads(done.stdout.splitlines()[-1])
    assert not [out for out in by_command.values() if out.startswith("exit code")], done.stderr
    return {what: by_command[command] for what, command in {**COMMANDS, "help": "--help"}.items()}


def test_a_policy(printed: dict[str, str]) -> None:
    small, large = json.loads(printed["policy"])
    assert (small["policy"], large["policy"]) == ("each-1", "each-3")
    assert small["goodput"] != large["goodput"]


def test_a_forecaster(printed: dict[str, str]) -> None:
    assert json.loads(printed["forecaster"])["forecaster"] == "constant"  # the policy checks it


def test_a_trace_format(printed: dict[str, str]) -> None:
    assert json.loads(printed["trace format"])["received"] == 5 * 20


def test_a_model(printed: dict[str, str]) -> None:
    assert json.loads(printed["model"])["model"] == "tiny-cnn"


def test_a_benchmark_and_a_model_of_the_users(printed: dict[str, str]) -> None:
    trained = json.loads(printed["benchmark"])
    assert (trained["benchmark"], trained["model"]) == ("greys", "mine:Means")


def test_a_gpu_driver(printed: dict[str, str]) -> None:
    assert "create 2g.12gb at 0" in printed["GPU driver"]


def test_a_board(printed: dict[str, str]) -> None:
    assert "2g.12gb" in printed["board"]


def test_a_verb(printed: dict[str, str]) -> None:
    assert printed["verb"] == "hello you\n"
    assert "Say hello." in printed["help"]


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[str]:
    """The first cells of a page's table, without its head."""
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return [cell.strip("`") for cell in cells[1:]]


def packages() -> list[str]:
    """The packages in the order of the page's table."""
    return rows(PAGE.partition("## ")[0])


@cache
def imported(package: str) -> frozenset[str]:
    """The packages of ours that a package imports."""
    nodes = [
        node
        for path in (SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = {name.split(".")[1] for name in names if name.startswith("migrator.")}
    return frozenset(ours & set(packages()) - {package})


def test_every_extension_point_of_the_page_is_tried() -> None:
    assert rows(section("Where to add something")) == list(COMMANDS)


def test_every_package_is_in_the_table() -> None:
    existing = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(packages()) == existing
    assert len(packages()) == len(existing)


@pytest.mark.parametrize("package", packages())
def test_a_package_imports_only_those_above_it_in_the_table(package: str) -> None:
    above = packages()[: packages().index(package)]
    assert imported(package) <= set(above)


def test_the_flow_names_packages_and_follows_their_imports() -> None:
    (drawing,) = re.findall(r"```\n(.*?)```", PAGE.partition("## ")[0], re.DOTALL)
    steps = [line.split(" -> ") for line in drawing.splitlines()]
    for line in steps:
        for before, after in pairwise(line):
            for user in after.split(", "):
                assert imported(user) & set(before.split(", ")), f"{user} uses none of {before}"
