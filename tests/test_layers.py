"""Imports point down: what each package of ours may import, and heavy libraries only where used."""

import ast
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
    "cluster.outcome": {"core", "records", "cluster.scenario"},
    "cluster.file": {"core", "io", "workload", "cluster.scenario"},
    "cluster.report": {"core", "report", "cluster.outcome", "cluster.scenario"},
    "cluster.shared_files": {"core", "io"},
    "cluster.shared_store": {"core", "io", "live", "cluster.shared_files"},
    "cluster.placement": {
        "core",
        "cluster.outcome",
        "cluster.scenario",
        "io",
        "forecast",
        "planning",
        "policies",
        "workload",
        "records",
        "simulation",
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
    code = "import sys, migrator.profiling.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numba", "pydantic", "typer"} & set(done.stdout.split())


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


@pytest.mark.parametrize(
    ("verb", "absent"),
    [
        (["--help"], {"numpy", "numba", "plotly", "matplotlib", "highspy", "torch"}),
        (["benchmarks"], {"torch", "transformers", "numba", "PIL"}),
        (["profiles"], {"numpy", "numba", "torch"}),
        (["boards"], {"numpy", "numba", "plotly", "matplotlib", "highspy"}),
        (["example"], {"numpy", "numba", "plotly", "matplotlib", "highspy"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_heavy_libraries_load_only_where_used(verb: list[str], absent: set[str]) -> None:
    code = (
        "import sys\n"
        "from migrator.cli import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *{name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *verb], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert not loaded & absent


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (
            "migrator.cluster.fleet.gateway, migrator.cluster.fleet.ray_head",
            {"numba", "migrator.live.daemon", "migrator.planning.kernels"},
        ),
        ("migrator.control.policy_process", {"pydantic", "yaml", "migrator.workload.live"}),
    ],
    ids=("cluster", "policy"),
)
def test_processes_load_only_what_they_use(modules: str, absent: set[str]) -> None:
    """Each start of one would take twice as long."""
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not absent & set(done.stdout.split())
