"""The files of the journal, of records and of labels: damaged, moved away, locked."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from support import PYTHONPATH

from migrator.core.catalogue import Place, boards
from migrator.core.errors import InputError, MigratorError
from migrator.gpu.drivers.base import Gpu
from migrator.gpu.journal import Journal
from migrator.io import database
from migrator.io.database import (
    DamagedError,
    FileMovedError,
    Schema,
    explain_errors,
    is_damage,
    open_database,
    reading,
    transaction,
)
from migrator.live.labels import Labels
from migrator.records.rows import SecondRecord
from migrator.records.store import Records

THINGS = Schema("things", 7, 1, ("CREATE TABLE thing (name TEXT UNIQUE)",))
GPU = Gpu(0, "GPU-0", "a GPU", boards()["A100-40GB"], "boot-1", "1", True, "mig")


def write_journal(path: Path) -> Path | None:
    with Journal(path, synchronous="OFF") as journal:
        for _ in range(30):
            journal.begin_create(GPU, "migrator", Place(4, "3g.20gb"))
        return journal.damaged


def write_records(path: Path) -> Path | None:
    with Records(path, scenario="s", board="b", driver="d", policy="p", seed=0) as records:
        for second in range(300):
            records.put(SecondRecord("vision", second, 4, 3))
        return records.damaged


def write_labels(path: Path) -> Path | None:
    async def add_labels() -> Path | None:
        labels = Labels(path)
        for number in range(3):
            inputs = np.full(3000, number, np.uint8)
            await labels.add("vision", 0, inputs, number, 1, f"r{number}")
        await labels.close()
        return labels.damaged

    return asyncio.run(add_labels())


KINDS = {"journal": write_journal, "records": write_records, "labels": write_labels}
"""Owners that open the file, add rows, and return where a damaged file was moved."""


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_text(path: Path) -> None:
    path.write_text("not a database\n" * 500, encoding="utf-8")


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwrite_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


def add_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (name TEXT)")


def another_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")


DAMAGES = [make_empty, make_text, cut_off, overwrite_pages, add_a_table, another_program]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_owner_moves_a_damaged_file_aside_and_begins_anew(
    kind: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / f"{kind}.db"
    assert KINDS[kind](path) is None
    damage(path)
    broken = path.read_bytes()
    aside = KINDS[kind](path)
    assert aside is not None
    assert aside.name.startswith(f"{kind}.db.damaged-")
    assert aside.read_bytes() == broken
    assert KINDS[kind](path) is None, "the new file is sound"


def test_a_damaged_file_takes_its_log_along(tmp_path: Path) -> None:
    path, log = tmp_path / "things.db", tmp_path / "things.db-wal"
    connection, _ = open_database(path, THINGS, "OFF")
    connection.execute("INSERT INTO thing VALUES ('a')")
    written = log.read_bytes()
    connection.close()
    make_text(path)
    log.write_bytes(written)
    connection, aside = open_database(path, THINGS, "OFF")
    with closing(connection):
        assert connection.execute("SELECT * FROM thing").fetchall() == []
    assert Path(f"{aside}-wal").read_bytes() == written


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_without_waiting(
    kind: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "file.db"
    make(path)
    opened = f"from test_database import KINDS; KINDS[{kind!r}](Path({str(path)!r}))"
    paths = os.pathsep.join([str(Path(__file__).parent), PYTHONPATH])
    done = subprocess.run(
        [sys.executable, "-c", f"from pathlib import Path; {opened}"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
    )
    assert "it is not a regular file" in done.stderr.splitlines()[-1]


def test_an_index_that_differs_from_its_table_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "things.db"
    connection, _ = open_database(path, THINGS, "OFF")
    connection.execute("INSERT INTO thing VALUES ('abcdef')")
    connection.close()
    database.open_checked(path, THINGS).close()
    content = path.read_bytes()
    at = content.rindex(b"abcdef")  # the index follows its table
    assert content.index(b"abcdef") < at
    path.write_bytes(content[:at] + b"abcdeg" + content[at + 6 :])
    with pytest.raises(DamagedError, match="pages are missing or broken"):
        database.open_checked(path, THINGS)


def test_rows_in_the_log_of_a_killed_process_are_kept(tmp_path: Path) -> None:
    path, log = tmp_path / "things.db", tmp_path / "things.db-wal"
    connection, _ = open_database(path, THINGS, "FULL")
    with transaction(connection):
        connection.execute("INSERT INTO thing VALUES ('a')")
    files = {file: file.read_bytes() for file in (path, log)}
    connection.close()
    for file, content in files.items():
        file.write_bytes(content)
    connection, aside = open_database(path, THINGS, "FULL")
    with closing(connection):
        assert connection.execute("SELECT * FROM thing").fetchall() == [("a",)]
    assert aside is None


@pytest.mark.parametrize("version", [0, 2])
def test_a_file_of_another_version_is_refused_and_stays(version: int, tmp_path: Path) -> None:
    path = tmp_path / "things.db"
    open_database(path, THINGS, "OFF")[0].close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    with pytest.raises(
        InputError, match=f"has version {version} and this MIGRator reads version 1"
    ):
        open_database(path, THINGS, "OFF")
    assert [file.name for file in tmp_path.glob("*damaged*")] == []


@pytest.mark.parametrize("taken", ["folder", "file", "-wal", "-shm", "replaced"])
def test_nothing_is_committed_to_a_file_that_is_not_at_its_path(tmp_path: Path, taken: str) -> None:
    path = tmp_path / "state" / "things.db"
    connection, _ = open_database(path, THINGS, "OFF")

    def add(name: str) -> None:
        with explain_errors(path, THINGS), transaction(connection):
            connection.execute("INSERT INTO thing (name) VALUES (?)", (name,))

    add("before")
    suffix = taken if taken.startswith("-") else ""
    source = path.parent if taken == "folder" else path.with_name(f"things.db{suffix}")
    aside = source.with_name(f"{source.name}.aside")
    source.rename(aside)
    if taken == "replaced":
        source.write_bytes(aside.read_bytes())
    with pytest.raises(FileMovedError, match=r"things.db: the file of things was moved or deleted"):
        add("meanwhile")
    aside.replace(source)
    add("after")
    connection.close()
    with reading(path, THINGS) as connection:
        assert [name for (name,) in connection.execute("SELECT name FROM thing")] == [
            "before",
            "after",
        ]


UNUSABLE = [
    ("SQLITE_FULL", False),
    ("SQLITE_BUSY", False),
    ("SQLITE_IOERR_WRITE", False),
    ("SQLITE_BUSY_SNAPSHOT", False),
    ("SQLITE_CORRUPT", True),
    ("SQLITE_NOTADB", True),
]


@pytest.mark.parametrize(("name", "expected"), UNUSABLE)
def test_errors_of_rights_space_and_locks_are_no_damage(name: str, expected: bool) -> None:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorcode = getattr(sqlite3, name)
    assert is_damage(error) == expected
    assert is_damage(sqlite3.OperationalError("Could not decode to UTF-8 column 'owner'"))
    assert not is_damage(sqlite3.ProgrammingError("closed"))
    assert not is_damage(PermissionError())


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_locked_is_neither_damaged_nor_set_aside(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.1)
    path = tmp_path / f"{kind}.db"
    KINDS[kind](path)
    hold = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA locking_mode=EXCLUSIVE'); c.execute('BEGIN EXCLUSIVE')\n"
        "c.execute('CREATE TABLE held (x)'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(MigratorError, match="locked"):
            KINDS[kind](path)
        process.kill()
    assert KINDS[kind](path) is None
    assert not list(tmp_path.glob("*.damaged-*"))
