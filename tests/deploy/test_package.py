"""The wheel and the sdist, the Dockerfile and the systemd unit, as far as this machine can tell."""

from __future__ import annotations

import configparser
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from support.gpu_cli import migrator

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
UNIT = ROOT / "deploy" / "systemd" / "migrator.service"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_wheel_has_everything_that_verbs_need(built: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, with the libraries of this environment: files that are missing show."""
    (wheel,) = built.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")  # nothing to compile
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
        held = {name for name in packed.namelist() if not name.endswith(".py")}
    data = [
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    ]
    assert set(data) <= held
    code = (
        "import migrator, sys\n"
        f"assert migrator.__file__.startswith({str(tmp_path)!r}), migrator.__file__\n"
        "from migrator.cli import app\n"
        "from migrator.workload.examples import NAMES\n"
        "for name in NAMES:\n"
        "    try:\n        app(['example', name])\n"
        "    except SystemExit as done:\n        assert not done.code, name\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)


def test_the_sdist_can_build_the_wheel(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as packed:
        names = {getname.partition("/")[2] for getname in packed.getnames()}
    assert {
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "src/migrator/py.typed",
        "deploy/Dockerfile",
    } <= names


def test_a_python_that_is_too_old_stops_the_build_with_one_sentence(tmp_path: Path) -> None:
    """Pip builds before it looks at dependencies."""
    for name in ("README.md", "hatch_build.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    text = (ROOT / "pyproject.toml").read_text()
    needed = PROJECT["requires-python"]
    (tmp_path / "pyproject.toml").write_text(text.replace(f'"{needed}"', '">=4.99"'))
    (tmp_path / "src" / "migrator").mkdir(parents=True)
    (tmp_path / "src" / "migrator" / "__init__.py").write_text('__version__ = "1"\n')
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    running = platform.python_version()
    assert done.stderr == f"migrator needs Python >=4.99; this is Python {running}\n"


def _instructions() -> list[tuple[str, str]]:
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (word, rest) for line in joined.splitlines() if line for word, rest in [line.split(None, 1)]
    ]


def test_the_dockerfile_names_what_there_is() -> None:
    instructions = _instructions()
    keywords = {
        *("ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "VOLUME", "USER", "EXPOSE"),
        *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    assert {name for name, _ in instructions} <= keywords
    arguments = {
        text.partition("=")[0]: text.partition("=")[2] for n, text in instructions if n == "ARG"
    }
    for name in arguments:
        assert re.search(rf"\$\{{?{name}\b", DOCKERFILE), f"{name} is not used"
    assert set(arguments["EXTRAS"].split(",")) <= set(PROJECT["optional-dependencies"])
    for name, text in instructions:
        if name == "COPY":
            *sources, _ = text.split()
            assert all((ROOT / source).exists() for source in sources)
        if name == "RUN":
            subprocess.run(["bash", "-n", "-c", text], check=True)
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = {path for name, text in instructions if name == "COPY" for path in text.split()[:-1]}
    assert copied == {line.removeprefix("!") for line in allowed if line.startswith("!")}


def test_the_unit_starts_a_command_that_there_is() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    # keys keep their case; typeshed declares a method that cannot be assigned
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    program, verb, scenario, *options = shlex.split(parser["Service"]["ExecStart"])
    assert program == "/opt/migrator/bin/migrator"
    done = migrator(verb, scenario, *options)
    assert done.refusal == f"{scenario}: there is no such file; check the path"
    assert done.code == int(parser["Service"]["RestartPreventExitStatus"])
    assert parser["Service"]["KillSignal"] == "SIGTERM"
