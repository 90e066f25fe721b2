"""Where compiled kernels are kept: only where no other user can put code."""

import itertools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

import migrator
from migrator.core.errors import InputError
from migrator.core.problem import Charge
from migrator.io.files import private_folder
from migrator.plan import kernels
from migrator.plan.exact.space import Ints
from migrator.plan.kernels import ZERO
from migrator.plan.solve import ready
from migrator.plan.survivors import planner, state_search

SOURCES = Path(migrator.__file__).parent
Chosen = Callable[[Path], Path | None]
PROGRAM = """
from migrator.plan import kernels
def kernel(x): return x + 1
found, use = kernels._cache_folder(), kernels.compiled(kernel)
assert use(1) == 2
print(found or None)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planner installed where nothing can be written beside its sources, even by root."""
    folder = tmp_path_factory.mktemp("installed")
    copied = shutil.copytree(
        SOURCES / "plan", folder / "migrator" / "plan", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "migrator" / "__init__.py").write_text("", encoding="utf-8")
    (copied / "__init__.py").write_text("", encoding="utf-8")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    (copied / "__pycache__").write_text("in the way", encoding="utf-8")
    return folder


def found(package: Path, cache: Path, temporary: Path) -> str:
    """Which folder a process chooses."""
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)
    variables = {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, str(package / "program.py")],
        env={**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_users_cache_is_used_and_is_the_users_alone(package: Path, tmp_path: Path) -> None:
    folder = Path(found(package, tmp_path / "cache", tmp_path / "temporary"))
    assert folder.parent == tmp_path / "cache" / "migrator"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.rglob("*.nbc"))


@pytest.fixture
def chosen(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    """Which folder the installed planner chooses: without starting a process for it."""
    spec = spec_from_file_location("installed", package / "migrator" / "plan" / "kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def folder(cache: Path) -> Path | None:
        temporary = tmp_path / "temporary"
        temporary.mkdir(exist_ok=True)
        temporary.chmod(0o1777)
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        module._cache_folder.cache_clear()
        found: Path | None = module._cache_folder()
        return found

    return folder


def test_a_temporary_folder_that_another_user_could_have_made_is_not_used(
    package: Path, chosen: Chosen, tmp_path: Path
) -> None:
    cache, temporary = tmp_path / "file" / "cache", tmp_path / "temporary"
    (tmp_path / "file").write_text("no folder can be made here", encoding="utf-8")
    mine = temporary / f"migrator-{os.getuid()}"
    first = chosen(cache)
    assert first is not None
    assert first.parent == mine  # nobody was there first
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    first.chmod(0o777)
    assert chosen(cache) is None
    assert found(package, cache, temporary) == "None", "and a process compiles in memory"
    shutil.rmtree(mine)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    mine.symlink_to(tmp_path / "elsewhere")
    assert chosen(cache) is None
    mine.unlink()
    mine.mkdir(mode=0o777)
    mine.chmod(0o777)
    assert chosen(cache) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_used(chosen: Chosen, tmp_path: Path) -> None:
    planted = tmp_path / "cache" / "migrator"
    planted.mkdir(parents=True, mode=0o755)
    os.chown(planted, 65534, 65534)
    folder = chosen(tmp_path / "cache")
    assert folder is not None
    assert folder.parent.parent == tmp_path / "temporary"


def test_a_daemon_refuses_a_folder_that_others_can_write(tmp_path: Path) -> None:
    assert stat.S_IMODE(private_folder(tmp_path / "own").stat().st_mode) == 0o700
    (tmp_path / "own").chmod(0o777)
    with pytest.raises(InputError, match="other users can write"):
        private_folder(tmp_path / "own")


def test_what_is_compiled_is_noted_once_per_state_of_the_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernels, "_cache_folder", lambda: tmp_path)
    assert not kernels.is_compiled("paper")
    kernels.note_compiled("paper")
    assert kernels.is_compiled("paper")
    assert not kernels.is_compiled("survivors")
    monkeypatch.setattr(kernels, "_cache_folder", lambda: None)
    kernels.note_compiled("survivors")
    assert not kernels.is_compiled("survivors")


def test_all_kernels_are_compiled_however_slow_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[int] = []
    run = state_search.StateSearch.run

    def counted(self: state_search.StateSearch, *args: Any) -> state_search.Outcome:
        passes.append(1)
        return run(self, *args)

    seconds = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(planner, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    monkeypatch.setattr(state_search.StateSearch, "run", counted)
    ready.__wrapped__(Charge.SURVIVORS)
    assert passes


@pytest.fixture
def _not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled in every process."""
    monkeypatch.setattr(kernels, "_cache_folder", lambda: None)


@pytest.mark.usefixtures("_not_kept")
def test_a_constant_does_not_compile_a_kernel_once_more() -> None:
    @kernels.compiled_inner
    def larger(one: int, other: int) -> int:
        return max(one, other)

    @kernels.compiled
    def largest(numbers: Ints, least: int) -> int:
        found = larger(ZERO, least)
        for at in range(numbers.shape[0]):
            found = larger(found, numbers[at])
        return found

    assert largest(np.array([3, 5, 4]), 2) == 5
    assert len(cast(Dispatcher, larger).signatures) == 1


@pytest.mark.usefixtures("_not_kept")
def test_a_kernel_that_makes_an_array_is_refused() -> None:
    @kernels.compiled
    def copied(numbers: Ints) -> int:
        return len(numbers.copy())

    with pytest.raises(NumbaError, match="NRT"):
        copied(np.array([3]))


USED = """
import sys
import numba.core.event as event
from migrator.core.problem import Charge
from migrator.plan.first_use import compile_first_half, compile_second_half
from migrator.plan.solve import ready
with event.install_recorder("numba:compile") as compiled:
    for walk in {walks}:
        walk(Charge.{charge})
print(len(compiled.buffer), "compiled")
for name, module in sorted(sys.modules.items()):
    for kernel in vars(module).values() if name.startswith("migrator.plan.") else ():
        if getattr(kernel, "__module__", "") == name and getattr(kernel, "signatures", ()):
            print(name, kernel.__name__, kernel.signatures)
"""


@pytest.mark.parametrize("charge", list(Charge))
def test_the_two_halves_are_what_planning_uses_and_nothing_is_compiled_twice(
    charge: Charge, tmp_path: Path
) -> None:
    ready(charge)
    used = [
        subprocess.run(
            [sys.executable, "-c", USED.format(walks=walks, charge=charge.name)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for walks in ("[ready]", "[compile_first_half, compile_second_half]")
    ]
    assert ("survivors.state_search _expand" in used[0]) == (charge is Charge.SURVIVORS)
    assert "exact.expand expand" in used[0]
    assert used[0] == used[1]
    assert used[0].startswith("0 compiled\n")
