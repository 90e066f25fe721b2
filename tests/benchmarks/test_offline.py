"""What benchmarks/gpu/offline.py packs, and into how many parts."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.installed import link_packages, required

from benchmarks.gpu import offline

ROOT = Path(__file__).parents[2]
LINUX = {"python_version": "3.12", "platform_machine": "x86_64"}


def packed(*options: str) -> dict[str, str]:
    """What is packed with these options, with the versions installed here."""
    asked = offline.parser().parse_args(["parts", *options])
    return offline.needed(offline.EXTRAS, LINUX, offline.on_machine(asked))


def test_everything_that_is_needed_is_packed_but_torch() -> None:
    packages = packed()
    assert {"numpy", "llvmlite", "pydantic", "uvloop", "transformers", "timm"} <= set(packages)
    assert not {"torch", "torchvision", "sympy", "migrator", "migrator-gpu"} & set(packages)
    unused = {"plotly", "matplotlib", "kiwisolver", "fonttools", "hf-xet", "highspy", "ray"}
    assert not unused & set(packages)


def test_markers_are_those_of_the_machine() -> None:
    windows = {**LINUX, "sys_platform": "win32", "platform_system": "Windows"}
    assert "uvloop" in offline.needed(["serve"], LINUX, {})
    assert "uvloop" not in offline.needed(["serve"], windows, {})


def test_what_is_packed_is_enough(tmp_path: Path) -> None:
    """Beside torch and what it needs, which the machine has; as `unpack.sh` arranges it."""
    link_packages(tmp_path, {*packed(), *required(["torch"])})
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "from migrator.cli import app\n"
        "app(['validate', 'examples/live.yaml'])\n"
    )
    used = [
        *("migrator.live.daemon", "migrator.serving.http.server", "migrator.load.run"),
        *("migrator.learn.zoo", "migrator.learn.hf_models", "migrator.learn.timm_models"),
        *("migrator.planning.planners", "migrator.policies.migrator", "migrator.profiling.run"),
        *("benchmarks.gpu.live", "benchmarks.gpu.drivers", "benchmarks.gpu.accuracies"),
        *("transformers.models.vit.modeling_vit", "uvicorn.protocols.http.httptools_impl"),
    ]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT / "src")))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *used],
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_files_are_divided_into_parts_that_are_small_enough() -> None:
    sizes = {Path(name): size for name, size in (("a", 5), ("b", 4), ("c", 3), ("d", 2))}
    parts = offline.divided(sizes, 7)
    assert sorted(path for part in parts for path in part) == sorted(sizes)
    assert [sum(sizes[path] for path in part) for part in parts] == [7, 7]
    with pytest.raises(ValueError, match="a has 0 MiB; give --part-mib more"):
        offline.divided(sizes, 4)


def test_a_wheel_larger_than_a_part_is_cut_and_joined_again(tmp_path: Path) -> None:
    wheel, parts = tmp_path / "tool-1.0-py3-none-any.whl", []
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("tool/__init__.py", "NAME = 'tool'\n" * 50)
    pieces = offline.cut(wheel, 200)
    assert not wheel.exists()
    assert len(pieces) > 2
    assert max(path.stat().st_size for path in pieces) <= 200
    for number, piece in enumerate(reversed(pieces)):
        parts.append(tmp_path / f"part-{number}")
        parts[-1].mkdir()
        piece.rename(parts[-1] / piece.name)
        (parts[-1] / "unpack.sh").write_text(offline._UNPACK)
    for part in parts:
        subprocess.run(["sh", str(part / "unpack.sh"), str(tmp_path / "dest")], check=True)
    assert (tmp_path / "dest/site/tool/__init__.py").read_text().startswith("NAME = 'tool'")
    assert list((tmp_path / "dest/pieces").iterdir()) == []


def pip_list(path: Path, *rows: str) -> str:
    path.write_text("\n".join(["Package Version", "------- -------", *rows]) + "\n")
    return str(path)


def test_what_the_machine_has_is_not_packed_nor_what_only_that_needs(tmp_path: Path) -> None:
    there = pip_list(tmp_path / "list", "torch 2.11.0+cu130", "transformers 5.0.0", "numpy 2.1.0")
    packages = packed("--installed", there)
    assert not {"transformers", "tokenizers", "numpy", "torch"} & set(packages)
    assert {"pydantic", "llvmlite", "safetensors"} <= set(packages)
    by_name = packed("--have", "transformers,numpy")
    assert by_name == packages


def test_what_is_too_old_there_is_packed_with_what_it_needs(tmp_path: Path) -> None:
    """An older transformers brings other packages, and perhaps an older pydantic is there."""
    rows = ("torch 2.11.0", "transformers 4.30.0", "pydantic 1.10.2", "tokenizers 0.13.3")
    packages = packed("--installed", pip_list(tmp_path / "list", *rows))
    assert {"transformers", "pydantic", "pydantic-core", "tokenizers"} <= set(packages)


@pytest.mark.parametrize(
    ("row", "message"), [("numpy 2.1.0", "lists no torch"), ("torch 2.4.0", "torch>=2.9 is needed")]
)
def test_a_machine_without_a_torch_that_suffices_is_refused(
    row: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=message):
        packed("--installed", pip_list(tmp_path / "list", row))


@pytest.mark.parametrize(
    "text",
    [
        "numba==0.68.1\nPyYAML @ file:///x\n-e git+https://x\n",
        "Package Version\n--- ---\nnumba   0.68.1\nPyYAML  @ file:///x\n[notice] new release\n",
    ],
)
def test_lists_of_pip_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "list").write_text(text)
    assert offline.listed(tmp_path / "list") == {"numba": "0.68.1", "pyyaml": None}
