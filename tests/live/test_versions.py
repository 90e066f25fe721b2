"""Model versions: whole or not there, growing numbers, the last good one, the one before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from migrator.core.errors import InputError
from migrator.live.versions import Versions


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "versions", "vision")


def weights(tmp_path: Path, number: int) -> Path:
    path = tmp_path / f"retrained-{number}"
    path.write_bytes(b"weights %d" % number * 100)
    return path


def filled(versions: Versions, tmp_path: Path, count: int) -> None:
    for number in range(1, count + 1):
        versions.add(weights(tmp_path, number), 0.5 + number / 100, {"window": number})


def test_the_newest_serves_and_the_last_few_stay(versions: Versions, tmp_path: Path) -> None:
    assert versions.newest_good() is None
    filled(versions, tmp_path, 5)
    newest = versions.newest_good()
    assert newest is not None
    assert (newest.number, newest.accuracy, newest.about) == (5, 0.55, {"window": 5})
    assert newest.weights.read_bytes() == weights(tmp_path, 5).read_bytes()
    assert [version.number for version in versions.good()] == [5, 4, 3]
    assert len(list(versions.folder.iterdir())) == 6
    assert Versions(tmp_path / "versions", "text").newest_good() is None


@pytest.mark.parametrize("damage", ["weights", "json", "checksum", "missing"])
def test_a_damaged_version_is_passed_over_and_its_number_never_given_again(
    versions: Versions, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    filled(versions, tmp_path, 3)
    broken = versions.folder / "000003.safetensors"
    note = versions.folder / "000003.json"
    if damage == "weights":
        broken.write_bytes(broken.read_bytes()[:-1])
    elif damage == "missing":
        broken.unlink()
    elif damage == "json":
        note.write_text("", encoding="utf-8")
    else:
        note.write_text(note.read_text(encoding="utf-8").replace("0.53", "0.99"), encoding="utf-8")
    version = versions.newest_good()
    assert version is not None
    assert version.number == 2
    assert len(caplog.messages) == 1
    assert "damaged" in caplog.text
    assert versions.add(weights(tmp_path, 4), None).number == 4


def test_going_back_withdraws_the_newest(versions: Versions, tmp_path: Path) -> None:
    filled(versions, tmp_path, 3)
    assert versions.roll_back(3).number == 2
    newest = versions.newest_good()
    assert newest is not None
    assert newest.number == 2
    assert versions.add(weights(tmp_path, 9), 0.9).number == 4
    assert [version.number for version in versions.good()] == [4, 2, 1]
    assert versions.roll_back(4).number == 2
    assert versions.roll_back(2).number == 1
    with pytest.raises(InputError, match="no earlier version"):
        versions.roll_back(1)
    last = versions.newest_good()
    assert last is not None
    assert last.number == 1


def test_what_is_not_there_or_cannot_be_written_changes_nothing(
    versions: Versions, tmp_path: Path
) -> None:
    filled(versions, tmp_path, 1)
    with pytest.raises(InputError, match="no weights"):
        versions.add(tmp_path / "nowhere", 0.9)
    version = versions.newest_good()
    assert version is not None
    assert version.number == 1
    assert len(list(versions.folder.iterdir())) == 2
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be kept there"):
        Versions(tmp_path / "file", "vision").add(weights(tmp_path, 1), 0.9)


_ADDING = """
import resource, sys
from pathlib import Path
from migrator.core.errors import InputError
from migrator.live.versions import Versions

folder, weights, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
versions = Versions(folder, "vision")
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        versions.add(weights, 0.9)
    except InputError as error:
        print(error)
else:
    while True:
        print(versions.add(weights, 0.9).number, flush=True)
"""


@pytest.mark.parametrize("limit", [1000, 100])
def test_a_full_disk_leaves_the_last_good_version(
    versions: Versions, tmp_path: Path, limit: int
) -> None:
    filled(versions, tmp_path, 1)
    # so small that either its weights or, weights being tiny, its JSON find no room
    large = tmp_path / "large"
    large.write_bytes(b"w" * (5000 if limit == 1000 else 50))
    done = subprocess.run(
        [sys.executable, "-c", _ADDING, str(versions.folder.parent), str(large), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cannot be written" in done.stdout
    version = versions.newest_good()
    assert version is not None
    assert version.number == 1
    assert len(list(versions.folder.iterdir())) == 2


def test_a_writer_killed_at_any_moment_leaves_a_good_version(
    versions: Versions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "large"
    source.write_bytes(b"w" * 3_000_000)
    last = 0
    for stop in (3, 4, 6):
        command = [sys.executable, "-c", _ADDING, str(versions.folder.parent), str(source), "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for number, line in enumerate(writer.stdout):
                assert int(line) > last
                last = int(line)
                if number == stop:
                    writer.kill()
        version = versions.newest_good()
        assert version is not None
        assert version.number >= last
    assert not caplog.messages
    assert versions.add(weights(tmp_path, 1), 0.5).number > last
    assert not list(versions.folder.glob(".*"))


def test_two_versions_that_come_at_once_get_two_numbers(tmp_path: Path) -> None:
    versions, weights = Versions(tmp_path / "here", "photos"), tmp_path / "given"
    weights.write_bytes(b"weights")
    given: list[int] = []

    def add() -> None:
        given.extend(versions.add(weights, None).number for _ in range(10))

    threads = [Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == list(range(1, 31))
