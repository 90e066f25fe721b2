"""Imports point down: what each package of ours may import, and heavy libraries only where used."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "migrator"

MAY_IMPORT = {
    "core": set(),
    "io": {"core"},
    "workload": {"core", "io"},
    "forecast": {"core", "io"},
    "planning": {"core", "io"},
    "control": {"core", "io", "forecast", "planning", "policies", "workload"},
    "learn": {"core", "io"},
    "gpu": {"core", "io"},
    "profiling": {"core", "io", "gpu", "learn"},
    "records": {"core", "io", "control", "planning"},
    "report": {"core", "io", "records"},
    "serving": {"core", "io", "gpu", "learn"},
    "dashboard": {"core", "io", "records", "report", "serving"},
    "load": {"core", "io", "learn", "workload"},
    "policies": {"core", "planning", "forecast"},
    "advise": {"core", "io", "workload", "policies", "control", "records", "simulation", "report"},
    "cluster.scenario": {"core"},
    "cluster.file": {"core", "io", "workload", "cluster.scenario"},
    "cluster.simulate": {"core", "io", "records", "simulation", "cluster.scenario"},
    "cluster.report": {"core", "report", "cluster.simulate", "cluster.scenario"},
    "cluster.shared_files": {"core", "io"},
    "cluster.shared_store": {"core", "io", "live", "cluster.shared_files"},
    "cluster.placement": {
        "core",
        "cluster.scenario",
        "io",
        "forecast",
        "planning",
        "policies",
        "workload",
    },
}
"""Packages not named here (simulation, live, cluster.fleet, cli) compose the others."""

USES_CLUSTERS = {"cli", "cluster"}
"""A GPU, simulated or live, does not know that it is one of a cluster's."""

APART = [
    ("simulation", "live"),
    ("live", "simulation"),
]


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _package(path: Path) -> str:
    return _unit(path.relative_to(SOURCE).with_suffix("").parts)


def _unit(parts: tuple[str, ...]) -> str:
    """The package, and of `cluster` which part of it."""
    return ".".join(parts[:2]) if parts[0] == "cluster" and len(parts) > 1 else parts[0]


@cache
def _imported(path: Path) -> frozenset[str]:
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def _names(path: Path, module: str) -> set[str]:
    """What a file imports from a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    imports = [e for e in nodes if isinstance(e, ast.ImportFrom) and e.module == module]
    return {alias.name for node in imports for alias in node.names}


def _ours(path: Path) -> set[str]:
    names = [name.split(".") for name in _imported(path) if name.split(".")[0] == "migrator"]
    return {_unit(tuple(parts[1:])) for parts in names if len(parts) > 1}


def test_imports_point_down() -> None:
    for path in _modules():
        package, ours = _package(path), _ours(path)
        if package in MAY_IMPORT:
            assert ours <= MAY_IMPORT[package] | {package}, path
        assert "cli" not in ours or package in ("__main__", "cli"), path
        if package.split(".")[0] not in USES_CLUSTERS:
            assert not {name for name in ours if name.split(".")[0] == "cluster"}, path
        for left, right in APART:
            assert package != left or right not in ours, path


RECORDING = {"recorder.py", "expected_arrivals.py"}
"""Modules of `records` that follow a run; the others hold and read what was recorded."""


def test_reading_records_needs_no_controller() -> None:
    for path in (SOURCE / "records").glob("*.py"):
        if path.name not in RECORDING:
            assert _ours(path) <= {"core", "io", "records"}, path


EXECUTOR_PARTS = ("executor", "keep_last_instance", "timeline")
"""Parts of the controller that only the controller uses."""


@pytest.mark.parametrize("package", ["simulation", "live"])
def test_only_the_controller_uses_policies_and_the_executor(package: str) -> None:
    """Neither policies nor the executor's parts: the controller alone uses those."""
    for path in (SOURCE / package).rglob("*.py"):
        imported = set(_imported(path))
        assert not {name for name in imported if name.startswith("migrator.policies")}, path
        parts = {f"migrator.control.{name}" for name in EXECUTOR_PARTS}
        assert not imported & parts, path
        assert _names(path, "migrator.control.units") <= {"State", "Unit"}, path


def test_the_checker_shares_nothing_with_the_planners() -> None:
    imported = set(_imported(SOURCE / "planning" / "check.py"))
    assert not {name for name in imported if name.startswith("migrator.planning")}


def test_learning_runs_where_only_torch_and_its_models_are() -> None:
    """A GPU host has no MIGRator installed: the script there takes learn/ as it is."""
    allowed = {"numpy", "torch", "safetensors", "migrator", *sys.stdlib_module_names}
    for path in (SOURCE / "learn").rglob("*.py"):
        assert {name.split(".")[0] for name in _imported(path)} <= allowed, path


def test_profiling_runs_there_too_and_loads_torch_in_its_workers_only() -> None:
    allowed = {"numpy", "migrator", *sys.stdlib_module_names}
    for path in (SOURCE / "profiling").rglob("*.py"):
        others = {name.split(".")[0] for name in _imported(path)} - allowed
        assert others <= ({"torch"} if path.name == "steps.py" else set()), path


def test_what_learning_and_profiling_use_of_io_needs_the_standard_library_only() -> None:
    allowed = {"migrator", *sys.stdlib_module_names}
    waiting = {
        name
        for package in ("learn", "profiling")
        for path in (SOURCE / package).rglob("*.py")
        for name in _imported(path)
        if name.startswith("migrator.io.")
    }
    used: set[str] = set()
    while waiting:
        used |= waiting
        imported = {
            name
            for module in waiting
            for name in _imported(
                SOURCE / f"{module.removeprefix('migrator.').replace('.', '/')}.py"
            )
        }
        assert {name.split(".")[0] for name in imported} <= allowed, waiting
        waiting = {name for name in imported if name.startswith("migrator.io.")} - used


@pytest.mark.parametrize(
    "package", ["core", "planning", "policies", "simulation", "workload", "cli"]
)
def test_nothing_else_loads_what_models_are_made_of(package: str) -> None:
    heavy = {"torch", "transformers", "safetensors", "PIL", "torchvision"}
    for path in (SOURCE / package).rglob("*.py"):
        assert not {name.split(".")[0] for name in _imported(path)} & heavy, path


def test_the_ilp_shares_nothing_with_the_exact_planner() -> None:
    for path in (SOURCE / "planning" / "ilp").glob("*.py"):
        foreign = {
            name
            for name in _imported(path)
            if name.startswith("migrator.planning") and not name.startswith("migrator.planning.ilp")
        }
        assert not foreign, path


HEAVY = {"numpy", "numba", "plotly", "matplotlib", "highspy", "torch"}
LIGHT_VERBS = {
    "gpu list --driver emulated": HEAVY | {"yaml", "sqlite3"},
    "--help": HEAVY,
    "boards": HEAVY,
    "example": HEAVY,
    "profiles": HEAVY,
    "benchmarks": {"torch", "transformers", "numba", "PIL"},
}
"""Verb -> libraries that it does not load; one that loads more comes later."""


def test_heavy_libraries_load_only_where_used(tmp_path: Path) -> None:
    code = (
        "import contextlib, sys\n"
        "from migrator.cli import app\n"
        "for verb in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        app(verb.split())\n"
        "    print('LOADED', *{name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *LIGHT_VERBS],
        env={**os.environ, "MIGRATOR_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    for (verb, absent), loaded in zip(LIGHT_VERBS.items(), lines, strict=True):
        assert not set(loaded.split()) & absent, verb


LIGHT_MODULES = {
    "migrator.gpu.drivers.registry": {"pynvml", "numpy", "pydantic", "torch"},
    "migrator.profiling.__main__": {"torch", "numba", "pydantic", "typer"},
    "migrator.serving.http.app": {"torch", "numba", "transformers", "pydantic"},
    "migrator.serving.http.server": {"torch", "numba", "transformers", "pydantic"},
    "migrator.control.policy_process": {"pydantic", "yaml", "migrator.workload.live"},
    "migrator.cluster.fleet.gateway": {"numba", "migrator.live.daemon"},
    "migrator.cluster.fleet.ray_head": {"numba", "migrator.live.daemon"},
}
"""Module of a process -> what it does not load; one that loads more comes later."""


def test_processes_load_only_what_they_use() -> None:
    """Each start of one would take twice as long."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n    importlib.import_module(name)\n    print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *LIGHT_MODULES], capture_output=True, text=True, check=True
    )
    for (module, absent), loaded in zip(
        LIGHT_MODULES.items(), done.stdout.splitlines(), strict=True
    ):
        assert not absent & set(loaded.split()), module
