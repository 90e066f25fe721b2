"""What benchmarks/gpu/offline.py packs, and into how many parts."""

from pathlib import Path

import offline
import pytest

LINUX = {"python_version": "3.12", "platform_machine": "x86_64"}


def test_everything_that_a_package_needs_is_packed_and_nothing_of_other_extras() -> None:
    served = offline.needed(["migrator[serve]"], LINUX)
    assert {"migrator", "numpy", "llvmlite", "uvloop", "starlette", "torch"} <= set(served)
    assert "matplotlib" not in served
    assert "matplotlib" in offline.needed(["migrator[figures]"], LINUX)


def test_markers_are_those_of_the_machine() -> None:
    assert "uvloop" in offline.needed(["uvicorn[standard]"], LINUX)
    windows = {**LINUX, "sys_platform": "win32", "platform_system": "Windows"}
    assert "uvloop" not in offline.needed(["uvicorn[standard]"], windows)


def test_files_are_divided_into_parts_that_are_small_enough() -> None:
    sizes = {Path(name): size for name, size in (("a", 5), ("b", 4), ("c", 3), ("d", 2))}
    parts = offline.divided(sizes, 7)
    assert sorted(each for part in parts for each in part) == sorted(sizes)
    assert [sum(sizes[each] for each in part) for part in parts] == [7, 7]
    with pytest.raises(ValueError, match="a has 0 MiB; give --part-mib more"):
        offline.divided(sizes, 4)
