"""Pack MIGRator for a GPU machine without a network.

    pip list > PIP_LIST                     # on the machine
    python -m benchmarks.gpu.offline FOLDER --python 3.12 --installed PIP_LIST [--data DATA]

Writes FOLDER/part-1, part-2, ...: the committed sources, the wheels of what they need, and the
files of DATA. What the machine has in a version that suffices is not packed, nor what only that
needs. Without PIP_LIST everything is packed but what `--have NAME,...` names. torch and
torchvision are never packed: they belong to the machine's CUDA. Versions are those installed here.

On the machine, `sh part-N/unpack.sh DEST` for every part, in any order, then `DEST/run COMMAND...`
runs a command with MIGRator on its path and DATA as MIGRATOR_DATA, for example
`DEST/run python3 -m benchmarks.gpu.live --out FOLDER --driver mps --no-page`. Pages are not written
there: take FOLDER home for `--page`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ("serve", "pretrained")
OF_THE_MACHINE = frozenset({"torch", "torchvision"})
"""Built for the machine's CUDA: never packed."""
UNUSED = {
    "highspy": "solves placements in clusters and --solver ilp",
    "hf-xet": "downloads from the hub",
    "python-dotenv": "reads uvicorn's settings from a file",
    "watchfiles": "restarts uvicorn when sources change",
    "websockets": "another protocol of uvicorn's",
}
"""What our requirements bring, and no command on such a machine imports."""
_GLIBC = ("2014", "_2_17", "_2_24", "_2_27", "_2_28", "_2_31", "_2_34")
_MIB = 2**20
_UNPACK = """\
#!/bin/sh
# sh unpack.sh DEST: adds this part to the folder
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/site" "$1/data" "$1/pieces"
dest=$(cd "$1" && pwd)
for each in "$here"/*.whl; do
    [ ! -e "$each" ] || python3 -m zipfile -e "$each" "$dest/site"
done
for each in "$here"/*.piece-*; do
    [ -e "$each" ] || continue
    cp "$each" "$dest/pieces"
    name=$(basename "${each%.piece-*}") count=${each##*-of-}
    if [ "$(ls "$dest/pieces/$name".piece-* | wc -l)" -eq "$count" ]; then
        cat "$dest/pieces/$name".piece-* > "$dest/pieces/$name"
        python3 -m zipfile -e "$dest/pieces/$name" "$dest/site"
        rm "$dest/pieces/$name"*
    fi
done
[ ! -d "$here/data" ] || cp -R "$here/data/." "$dest/data/"
if [ -e "$here/migrator.tar" ]; then
    mkdir -p "$dest/migrator"
    tar xf "$here/migrator.tar" -C "$dest/migrator"
fi
cat > "$dest/run" <<END
#!/bin/sh
export PYTHONPATH="$dest/migrator/src:$dest/site" MIGRATOR_DATA="$dest/data"
cd "$dest/migrator" && exec "\\$@"
END
chmod +x "$dest/run"
"""


def needed(
    extras: Sequence[str], markers: Mapping[str, str], there: Mapping[str, str | None]
) -> dict[str, str]:
    """Name -> version installed here of the packages that the machine lacks.

    `there`: what it has, None for any version. What a package of the machine needs is there too.
    SystemExit if its torch is too old.
    """
    versions: dict[str, str] = {}
    waiting = list(_own_requirements(extras))
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in UNUSED or (name not in versions and _suffices(wanted, name, there)):
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:  # optional, or for other systems
            continue
        versions[name] = package.version
        for extra in ("", *wanted.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                more = (Requirement(require) for require in package.requires or ())
                here = {**markers, "extra": extra}
                waiting += [
                    requirement
                    for requirement in more
                    if requirement.marker is None or requirement.marker.evaluate(here)
                ]
    return versions


def _own_requirements(extras: Sequence[str]) -> Iterator[Requirement]:
    """What pyproject.toml lists for these extras and those that they contain."""
    listed = list(PROJECT["dependencies"])
    for extra in extras:
        listed += PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, listed):
        if requirement.name == PROJECT["name"]:
            yield from _own_requirements(sorted(requirement.extras))
        else:
            yield requirement


def _suffices(wanted: Requirement, name: str, there: Mapping[str, str | None]) -> bool:
    """Whether the machine has what is wanted."""
    version = there.get(name)
    # a container's own build of a release may call itself 2.9.0a0+x
    fits = version is None or wanted.specifier.contains(Version(version).base_version)
    if name not in OF_THE_MACHINE:
        return name in there and fits
    if not fits:
        raise SystemExit(f"the machine has {name} {version}, and {wanted} is needed; install that")
    return True


def on_machine(asked: argparse.Namespace) -> dict[str, str | None]:
    """Package -> version that the machine has, None if that is not known."""
    if asked.installed is None:
        return {canonicalize_name(name): None for name in asked.have}
    there = listed(asked.installed)
    if "torch" not in there:
        raise SystemExit(
            f"{asked.installed} lists no torch; give what `pip list` prints on the machine, which "
            "needs a torch for its CUDA"
        )
    return there


def listed(path: Path) -> dict[str, str | None]:
    """Package -> version in the output of `pip list` or `pip freeze`; None for `NAME @ URL`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    matches = [re.match(r"([\w.-]+)(?:==|\s+)(?:(\d[\w.!+]*)|@ )", line) for line in lines]
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


def cut(wheel: Path, most: int) -> list[Path]:
    """Pieces of a wheel that is too large for a part, in its place; `unpack.sh` joins them."""
    count = -(-wheel.stat().st_size // most)
    if count == 1:
        return [wheel]
    pieces = []
    with wheel.open("rb") as whole:
        for number in range(1, count + 1):
            pieces.append(wheel.with_name(f"{wheel.name}.piece-{number:02}-of-{count}"))
            pieces[-1].write_bytes(whole.read(most))
    wheel.unlink()
    return pieces


def divided(sizes: Mapping[Path, int], most: int) -> list[list[Path]]:
    """The files in as few parts as they fit into, largest first; ValueError if one does not."""
    parts: list[list[Path]] = []
    for path in sorted(sizes, key=lambda size: -sizes[size]):
        if sizes[path] > most:
            raise ValueError(f"{path.name} has {sizes[path] / _MIB:.0f} MiB; give --part-mib more")
        for part in parts:
            if sum(sizes[other] for other in part) + sizes[path] <= most:
                part.append(path)
                break
        else:
            parts.append([path])
    return parts


def download(packages: Mapping[str, str], python: str, machine: str, into: Path) -> None:
    """Download the wheels of these versions for that machine."""
    platforms = [f"--platform=manylinux{version}_{machine}" for version in _GLIBC]
    named = [f"{name}=={version}" for name, version in packages.items()]
    options = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", *platforms]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(into)]
    subprocess.run([*command, *options, *named], check=True)


def pack(asked: argparse.Namespace) -> list[Path]:
    """Write the parts; return their folders."""
    markers = {
        "python_version": asked.python,
        "python_full_version": f"{asked.python}.0",
        "platform_machine": asked.machine,
    }
    gathered = asked.folder / "all"
    if asked.folder.exists() and any(asked.folder.iterdir()):
        raise SystemExit(f"{asked.folder} is not empty; delete it or name another folder")
    packages = needed(EXTRAS, markers, on_machine(asked))
    gathered.mkdir(parents=True, exist_ok=True)
    download(packages, asked.python, asked.machine, gathered)
    archive = ["git", "archive", "--output", str((gathered / "migrator.tar").absolute()), "HEAD"]
    subprocess.run(archive, cwd=ROOT, check=True)
    data = [] if asked.data is None else [path for path in asked.data.rglob("*") if path.is_file()]
    data = [path for path in data if not path.is_relative_to(asked.folder)]
    most = asked.part_mib * _MIB
    wheels = [piece for path in sorted(gathered.glob("*.whl")) for piece in cut(path, most)]
    files = [*wheels, gathered / "migrator.tar", *data]
    parts = divided({file: file.stat().st_size for file in files}, most)
    folders = [_written(part, asked, number) for number, part in enumerate(parts, 1)]
    shutil.rmtree(gathered)
    return folders


def _written(part: Sequence[Path], asked: argparse.Namespace, number: int) -> Path:
    folder: Path = asked.folder / f"part-{number}"
    folder.mkdir()
    for path in part:
        in_data = asked.data is not None and path.is_relative_to(asked.data)
        to = folder / "data" / path.relative_to(asked.data) if in_data else folder / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    (folder / "unpack.sh").write_text(_UNPACK, encoding="utf-8")
    return folder


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("folder", type=Path, help="new or empty, not inside DATA")
    made.add_argument("--python", default="3.12", help="Python version of the machine")
    made.add_argument("--machine", default="x86_64", help="its processor: x86_64 or aarch64")
    made.add_argument("--installed", type=Path, help="what `pip list` prints there, in a file")
    made.add_argument(
        "--have",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help="without --installed: what the machine has besides torch and torchvision",
    )
    made.add_argument("--data", type=Path, help="folder of data sets and traces")
    made.add_argument("--part-mib", type=int, default=60)
    return made


def main() -> None:
    """Print the parts with their sizes."""
    for part in pack(parser().parse_args()):
        size = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
        print(f"{part}: {size / _MIB:.0f} MiB")


if __name__ == "__main__":
    main()
