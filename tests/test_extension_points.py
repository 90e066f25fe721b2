"""docs/structure.md: what it lists is there, and each new thing is added through one file.

Every test adds its file to a copy of the package and uses it through a verb.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
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


@pytest.fixture(scope="module")
def compiled() -> Path:
    """The package with its kernels compiled, so that no copy has to compile them again."""
    ready(Charge.SURVIVORS)  # needs the kernels of the other charge too
    tenant.ready()
    return SOURCE


@pytest.fixture
def copy(compiled: Path, tmp_path: Path) -> Path:
    """A copy of the package, with its compiled files."""
    copied = tmp_path / "copied" / "migrator"
    shutil.copytree(compiled, copied)
    return copied


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which the verbs run."""
    made = tmp_path / "folder"
    made.mkdir()
    (made / "two.yaml").write_text(SCENARIO, encoding="utf-8")
    return made


def run(copy: Path, folder: Path, command: str) -> str:
    """What `migrator COMMAND` of the copy prints."""
    paths = (copy.parent, folder, ROOT / "tests")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "MIGRATOR_STATE": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "migrator", *command.split()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def add(copy: Path, name: str, text: str) -> None:
    """A new module in the package; an existing one gets the text at its end."""
    with (copy / name).open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_policy(copy: Path, folder: Path) -> None:
    add(copy, "policies/each.py", POLICY)
    listed = run(copy, folder, "policies")
    assert "each-1" in listed
    assert "each-3" in listed
    small, large = (
        json.loads(run(copy, folder, f"simulate two.yaml --policy each-{gpcs} --json"))
        for gpcs in (1, 3)
    )
    assert small != large


def test_a_forecaster(copy: Path, folder: Path) -> None:
    add(copy, "forecast/constant.py", FORECASTER)
    add(folder, "mine.py", OWN_POLICY)
    assert "123 requests in every slot" in run(copy, folder, "forecasters")
    run(copy, folder, "simulate two.yaml --policy mine:by_forecast --forecaster constant")


def test_a_trace_format(copy: Path, folder: Path) -> None:
    add(copy, "workload/traces/bars.py", TRACE_FORMAT)
    (folder / "day.txt").write_text("|||||\n" * 40, encoding="utf-8")
    (folder / "traced.yaml").write_text(TRACED, encoding="utf-8")
    result = json.loads(run(copy, folder, "simulate traced.yaml --policy equal-mig --json"))
    assert result["received"] == 5 * 20


def test_a_model(copy: Path, folder: Path) -> None:
    add(copy, "learn/zoo.py", MODEL)
    assert "tiny-cnn" in run(copy, folder, "models")
    trained = "retrain nc-synthetic --windows 1 --epochs 1 --samples 8 --json --model"
    assert json.loads(run(copy, folder, f"{trained} tiny-cnn"))["model"] == "tiny-cnn"


def test_a_model_of_the_users(copy: Path, folder: Path) -> None:
    shutil.copy(ROOT / "tests" / "support" / "means_model.py", folder / "mine.py")
    trained = "retrain nc-synthetic --windows 1 --epochs 1 --samples 8 --json --model"
    result = json.loads(run(copy, folder, f"{trained} mine:Means"))
    assert result["model"] == "mine:Means"


def test_a_benchmark(copy: Path, folder: Path) -> None:
    add(copy, "learn/benchmarks/greys.py", BENCHMARK)
    assert "four greys, two at a time" in run(copy, folder, "benchmarks")
    trained = run(copy, folder, "retrain greys --model small-cnn --epochs 1 --json")
    assert json.loads(trained)["benchmark"] == "greys"


def test_a_gpu_driver(copy: Path, folder: Path) -> None:
    add(copy, "gpu/drivers/pretended.py", DRIVER)
    (folder / "layout.yaml").write_text(LAYOUT, encoding="utf-8")
    assert "create 2g.12gb at 0" in run(copy, folder, "gpu apply layout.yaml --driver pretended")
    gpu = json.loads(run(copy, folder, "gpu show --driver pretended --json"))
    assert [instance["profile"] for instance in gpu["instances"]] == ["2g.12gb"]


def test_a_board(copy: Path, folder: Path) -> None:
    path = copy / "core" / "boards.json"
    catalogue = json.loads(path.read_text(encoding="utf-8"))
    catalogue["boards"]["A31-24GB"] = catalogue["boards"]["A30-24GB"]
    path.write_text(json.dumps(catalogue), encoding="utf-8")
    assert "2g.12gb" in run(copy, folder, "boards A31-24GB")
    assert "A31-24GB" in run(copy, folder, "gpu show --driver emulated --board A31-24GB --json")


def test_a_verb(copy: Path, folder: Path) -> None:
    add(copy, "cli/plan_verbs.py", VERB)
    assert run(copy, folder, "greet you") == "hello you\n"
    assert "greet" in run(copy, folder, "--help")
    assert "Say hello." in run(copy, folder, "greet --help")


ADDED: dict[str, Callable[[Path, Path], None]] = {
    "policy": test_a_policy,
    "forecaster": test_a_forecaster,
    "trace format": test_a_trace_format,
    "model": test_a_model,
    "benchmark": test_a_benchmark,
    "GPU driver": test_a_gpu_driver,
    "board": test_a_board,
    "verb": test_a_verb,
}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[str]:
    """The first cells of a page's table, without its head."""
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return [cell.strip("`") for cell in cells[1:]]


def packages() -> list[str]:
    """The packages in the order of the page's table."""
    return rows(PAGE.partition("## ")[0])


def imported(package: str) -> set[str]:
    """The packages of ours that a package imports."""
    nodes = [
        node
        for path in (SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = {name.split(".")[1] for name in names if name.startswith("migrator.")}
    return ours & set(packages()) - {package}


def test_every_extension_point_of_the_page_is_tried() -> None:
    assert rows(section("Where to add something")) == list(ADDED)


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
