"""What benchmarks/gpu/offline.py packs, and into how many parts."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu import offline

LINUX = {"python_version": "3.12", "platform_machine": "x86_64"}


def test_everything_that_a_package_needs_is_packed_and_nothing_of_other_extras() -> None:
    served = offline.needed(["migrator-gpu[serve]"], LINUX)
    assert {"migrator", "numpy", "llvmlite", "uvloop", "starlette", "torch"} <= set(served)
    assert "matplotlib" not in served
    assert "matplotlib" in offline.needed(["migrator-gpu[figures]"], LINUX)


def test_markers_are_those_of_the_machine() -> None:
    assert "uvloop" in offline.needed(["uvicorn[standard]"], LINUX)
    windows = {**LINUX, "sys_platform": "win32", "platform_system": "Windows"}
    assert "uvloop" not in offline.needed(["uvicorn[standard]"], windows)


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


@pytest.mark.parametrize("given", [["--have", "torch,transformers"], ["--installed", "list"], []])
def test_what_a_package_of_the_machine_needs_is_packed(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may have an older transformers, which does not bring the same packages."""
    monkeypatch.chdir(tmp_path)
    Path("list").write_text("Package Version\n------- -------\ntorch 2.4\ntransformers 4.0\n")
    packages = offline.packed(offline.parser().parse_args(["parts", *given]), LINUX)
    assert {"pydantic", "huggingface-hub", "numpy", "typing-extensions"} <= set(packages)
    assert not {"torch", "migrator"} & set(packages)
    assert ("transformers" in packages) == (not given)


@pytest.mark.parametrize("text", ["numba==0.68.1\nPyYAML==6.0\n", "numba   0.68.1\nPyYAML  6.0\n"])
def test_what_a_machine_lists_is_not_packed(tmp_path: Path, text: str) -> None:
    (tmp_path / "list").write_text(text)
    assert offline.listed(tmp_path / "list") == {"numba", "pyyaml"}
