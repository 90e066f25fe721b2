"""The files of the journal, of records and of labels, damaged in every byte and upgraded."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.bit_flips import KINDS, Victim, bits, rows_of

from migrator.core.errors import InputError, MigratorError
from migrator.io import database
from migrator.io.database import DamagedError, Layout, is_damage, open_database, rebuilt, table

EVERY = [(kind, log) for kind in KINDS for log in (False, True)]
IDS = [f"{kind}{'-log' if log else ''}" for kind, log in EVERY]


@pytest.mark.parametrize(("kind", "log"), EVERY, ids=IDS)
def test_a_flipped_bit_is_noticed_or_harmless(kind: str, log: bool, tmp_path: Path) -> None:
    victim = Victim(KINDS[kind], tmp_path / f"{kind}.db", log)
    noticed = total = 0
    for position, bit in bits(victim.original, 1, unused=False):
        victim.flip(position, bit)
        noticed += victim.is_noticed()
        total += 1
    assert total > 300
    assert noticed > 0.9 * total


@pytest.mark.parametrize(("kind", "log"), EVERY, ids=IDS)
def test_the_owner_sets_a_damaged_file_aside_with_its_log(
    kind: str, log: bool, tmp_path: Path
) -> None:
    victim = Victim(KINDS[kind], tmp_path / f"{kind}.db", log)
    drawn = list(bits(victim.original, 1, unused=False))
    for position, bit in drawn[:: len(drawn) // 30]:
        victim.flip(position, bit)
        noticed = victim.is_noticed()
        assert victim.is_set_aside() == noticed
        if noticed and log:
            kept = [each for each in tmp_path.iterdir() if ".damaged-" in each.name]
            assert len([each for each in kept if each.name.endswith("-wal")]) == 1
        assert not victim.is_set_aside(), "the new file is sound"


def test_a_log_from_before_this_boot_may_end_in_what_a_power_cut_left(tmp_path: Path) -> None:
    victim = Victim(KINDS["labels"], tmp_path / "labels.db", log=True)
    victim.flip(len(victim.original) - 100, 3)
    assert victim.is_noticed()
    os.utime(tmp_path / "labels.db-wal", (1e9, 1e9))
    assert not victim.is_set_aside()


def test_a_broken_end_of_the_log_costs_only_what_is_in_it(tmp_path: Path) -> None:
    """A process that is killed while it commits leaves such an end."""
    victim = Victim(KINDS["labels"], tmp_path / "labels.db", log=True)
    victim.flip(len(victim.original) - 100, 3)
    assert victim.is_noticed()
    layout = KINDS["labels"].layout
    connection, aside = open_database(victim.path, layout, "OFF")
    with closing(connection):
        left = rows_of(connection, layout)["sample"]
    assert aside is not None
    assert Path(f"{aside}-wal").exists()
    whole = victim.rows["sample"]
    assert left == whole[: len(left)]
    assert len(left) == len(whole) - 1


def test_a_commit_whose_mark_is_lost_is_noticed(tmp_path: Path) -> None:
    """The mark is the number of pages, one bit where that is a power of two."""
    victim = Victim(KINDS["labels"], tmp_path / "labels.db", log=True)
    frames = (len(victim.original) - 32) // (24 + 512)
    at = 32 + (frames - 1) * (24 + 512) + 4
    mark = int.from_bytes(victim.original[at : at + 4], "big")
    assert mark == 8
    victim.flip(at + 3, 3)
    assert victim.is_noticed()


def test_what_a_rolled_back_transaction_left_in_the_log_is_no_damage(tmp_path: Path) -> None:
    layout = Layout("things", 7, 1, (table("thing", ("name TEXT",)),))
    path = tmp_path / "things.db"
    connection, _ = open_database(path, layout, "OFF")
    connection.execute("PRAGMA cache_size=1")
    connection.execute("BEGIN")
    for number in range(200):  # more than the cache holds: it is written before it is committed
        connection.execute("INSERT INTO thing (name) VALUES (?)", (f"{number}" * 500,))
    connection.execute("ROLLBACK")
    connection.execute("INSERT INTO thing (name) VALUES ('kept')")
    assert (tmp_path / "things.db-wal").stat().st_size > 100_000
    with closing(database.open_checked(path, layout)) as reading:
        assert rows_of(reading, layout)["thing"][0][0] == "kept"
    connection.close()


UNUSABLE = [
    ("SQLITE_CANTOPEN", False),
    ("SQLITE_READONLY", False),
    ("SQLITE_PERM", False),
    ("SQLITE_FULL", False),
    ("SQLITE_BUSY", False),
    ("SQLITE_LOCKED", False),
    ("SQLITE_IOERR_WRITE", False),
    ("SQLITE_BUSY_SNAPSHOT", False),
    ("SQLITE_CORRUPT", True),
    ("SQLITE_CORRUPT_INDEX", True),
    ("SQLITE_NOTADB", True),
    ("SQLITE_ERROR", True),
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
    KINDS[kind].write(path)
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
            KINDS[kind].open(path)
        process.kill()
    assert KINDS[kind].open(path) is None
    assert not list(tmp_path.glob("*.damaged-*"))


def test_an_upgrade_gives_checksums_to_old_rows(tmp_path: Path) -> None:
    path = tmp_path / "things.db"
    columns = ("id INTEGER PRIMARY KEY", "name TEXT", "size REAL")
    old = Layout("things", 7, 1, ("CREATE TABLE thing (id INTEGER PRIMARY KEY, name, size)",))
    new = Layout("things", 7, 2, (table("thing", columns),), {1: rebuilt("thing", columns)})
    connection, _ = open_database(path, old, "OFF")
    connection.execute("INSERT INTO thing VALUES (5, 'a', -0.0), (NULL, NULL, 2), (9, 'c', 1e99)")
    connection.close()
    earlier = Layout("things", 7, 0, ())
    with pytest.raises(InputError, match="newer MIGRator"):
        open_database(path, earlier, "OFF")
    connection, aside = open_database(path, new, "OFF")
    assert aside is None
    assert connection.execute("SELECT id, name, size FROM thing").fetchall() == [
        (5, "a", 0.0),
        (6, None, 2.0),
        (9, "c", 1e99),
    ]
    connection.execute("UPDATE thing SET name = 'b' WHERE id = 6")
    connection.close()
    database.open_checked(path, new).close()
    with closing(sqlite3.connect(path)) as damaging:
        damaging.execute("PRAGMA user_version=1")
    with pytest.raises(DamagedError, match="its version is not that of its tables"):
        database.open_checked(path, new)
