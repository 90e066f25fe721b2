import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from migrator.core.catalogue import Place, boards
from migrator.core.errors import GpuError, InputError
from migrator.gpu import journal as journal_file
from migrator.gpu.drivers.base import Gpu, GpuInstance
from migrator.gpu.journal import EntryState, Journal, live_creates
from migrator.gpu.layout import Op

PLACE = Place(4, "3g.20gb")
INSTANCE = GpuInstance(PLACE, 2, "MIG-a")


def gpu(boot_id: str = "boot-1", uuid: str = "GPU-0", driver: str = "mig") -> Gpu:
    return Gpu(0, uuid, "a GPU", boards()["A100-40GB"], boot_id, "1", True, driver)


def opened(path: Path) -> Journal:
    return Journal(path, synchronous="OFF")


def created(journal: Journal, place: Place = PLACE, of: Gpu | None = None) -> None:
    entry = journal.begin(of or gpu(), "migrator", Op.CREATE, place)
    journal.end(entry, EntryState.DONE, GpuInstance(place, 2, "MIG-a"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_an_intent_is_there_for_the_next_process_before_its_result(path: Path) -> None:
    with opened(path) as journal:
        entry = journal.begin(gpu(), "migrator", Op.CREATE, PLACE)
        with opened(path) as another:
            assert another.entries(gpu()) == (entry,)
            assert entry.state is EntryState.BEGUN
            assert (entry.owner, entry.place, entry.pid) == ("migrator", PLACE, os.getpid())
        ended = journal.end(entry, EntryState.DONE, INSTANCE)
    with opened(path) as another:
        assert another.entries(gpu()) == (ended,)
        assert (ended.number, ended.uuid) == (2, "MIG-a")
        assert another.damaged is None


def test_it_writes_ahead_and_syncs_by_default(path: Path) -> None:
    with Journal(path) as journal:
        assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_an_instance_ends_with_its_destroy_and_the_next_has_another_generation(path: Path) -> None:
    with opened(path) as journal:
        created(journal)
        (first,) = live_creates(journal.entries(gpu()))
        ending = journal.begin(gpu(), "migrator", Op.DESTROY, PLACE, create=first)
        assert live_creates(journal.entries(gpu())) == (first,)
        journal.end(ending, EntryState.DONE)
        assert not journal.entries(gpu())
        created(journal)
        (second,) = journal.entries(gpu())
        assert second.generation > first.generation


def test_an_unfinished_change_is_found_again_until_it_is_ended(path: Path) -> None:
    wanted = (Place(0, "1g.5gb+me"), PLACE)
    with opened(path) as journal:
        journal.begin_change(gpu(), "migrator", (PLACE,), wanted)
    with opened(path) as journal:
        (change,) = journal.unfinished(gpu())
        assert (change.before, change.wanted) == ((PLACE,), wanted)
        journal.end_change(change, EntryState.UNDONE)
        assert not journal.unfinished(gpu())
        assert journal.state_of(change) is EntryState.UNDONE


def test_another_boot_clears_this_gpu_only(path: Path) -> None:
    with opened(path) as journal:
        created(journal)
        created(journal, of=gpu(uuid="GPU-1"))
        journal.begin_change(gpu(), "migrator", (), (PLACE,))
        journal.begin_change(gpu("boot-0", "GPU-2"), "migrator", (), (PLACE,))
        assert not journal.forget_other_boots(gpu())
        assert not journal.forget_other_boots(gpu(uuid="GPU-2"))
        assert not journal.unfinished(gpu("boot-0", "GPU-2"))
        assert journal.forget_other_boots(gpu("boot-2")) == (PLACE,)
        assert not journal.entries(gpu())
        assert not journal.unfinished(gpu())
        assert journal.entries(gpu(uuid="GPU-1"))


def test_it_stays_small_and_forgets_nothing_alive(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "KEPT", 3)
    with opened(path) as journal:
        created(journal, Place(0, "1g.5gb"))
        for _ in range(9):
            journal.end_change(journal.begin_change(gpu(), "migrator", (), ()), EntryState.DONE)
            created(journal)
            (*_, create) = journal.entries(gpu())
            ending = journal.begin(gpu(), "migrator", Op.DESTROY, PLACE, create=create)
            journal.end(ending, EntryState.DONE)
            journal.shorten(gpu())
        (rows,) = journal._connection.execute("SELECT count(*) FROM deed").fetchone()
        (changes,) = journal._connection.execute("SELECT count(*) FROM change").fetchone()
        assert rows <= 7
        assert changes <= 6
        assert [entry.place for entry in journal.entries(gpu())] == [Place(0, "1g.5gb")]


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, whatever its name says" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def another_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE deed (what TEXT)")
    connection.close()


def another_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE deed RENAME COLUMN owner TO possessor")
    connection.close()


def a_page(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[4096 : 4096 + 64] = b"\xff" * 64
    path.write_bytes(text)


@pytest.mark.parametrize(
    "damage",
    [
        garbage,
        empty,
        half,
        another_database,
        another_table,
        a_page,
    ],
)
def test_a_damaged_file_is_kept_aside_and_a_new_one_begun(
    path: Path, damage: Callable[[Path], None]
) -> None:
    with opened(path) as journal:
        created(journal)
    damage(path)
    broken = path.read_bytes()
    with opened(path) as journal:
        assert not journal.entries(gpu())
        assert journal.damaged
        assert journal.damaged.name.startswith("journal.db.damaged-")
        assert journal.damaged.read_bytes() == broken
        created(journal)
    with opened(path) as journal:
        assert journal.damaged is None
        assert journal.entries(gpu())


def test_the_log_of_a_damaged_file_is_not_replayed_into_the_new_one(path: Path) -> None:
    first = opened(path)
    created(first)
    wal = path.with_name("journal.db-wal").read_bytes()
    first.close()
    path.unlink()
    path.with_name("journal.db-wal").write_bytes(wal)
    with opened(path) as journal:
        assert not journal.entries(gpu())
        assert journal.damaged is None
        assert list(path.parent.glob("journal.db.lost-*-wal"))


def test_text_that_cannot_be_read_stops_the_command_with_what_to_do(path: Path) -> None:
    with opened(path) as journal:
        created(journal)
    path.write_bytes(path.read_bytes().replace(b"migrator", b"\xedigrator"))
    with opened(path) as journal, pytest.raises(GpuError, match="move the file away, then run the"):
        journal.entries(gpu())


OPEN = (
    "import sys\nfrom pathlib import Path\nfrom migrator.gpu.journal import Journal\n"
    "with Journal(Path(sys.argv[1])) as journal: print(journal.damaged or '')\n"
)


def test_several_processes_at_once_make_one_new_file(path: Path) -> None:
    garbage(path)
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * 3
    aside = [str(file) for file in path.parent.glob("*.damaged-*")]
    assert [line for line in printed if line] == aside
    assert len(aside) == 1


def test_a_journal_of_another_version_is_refused_and_left_as_it_is(path: Path) -> None:
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 4")
    with pytest.raises(InputError, match="the journal has version 4 and this MIGRator reads versi"):
        opened(path)
    assert [file.name for file in path.parent.glob("*damaged*")] == []


def test_entries_of_other_drivers_on_one_gpu_are_separate(path: Path) -> None:
    with opened(path) as journal:
        created(journal, of=gpu(driver="mps"))
        journal.begin_change(gpu(driver="mps"), "migrator", (), (PLACE,))
        assert not journal.entries(gpu())
        assert not journal.unfinished(gpu())
        created(journal)
        assert journal.forget_other_boots(gpu("boot-2")) == (PLACE,)
        journal.shorten(gpu())
        (share,) = journal.entries(gpu(driver="mps"))
        assert (share.driver, share.place) == ("mps", PLACE)
        assert journal.unfinished(gpu(driver="mps"))


def test_looking_makes_and_changes_no_file(path: Path) -> None:
    with Journal(path, read_only=True) as journal:
        assert journal.entries(gpu()) == ()
        with pytest.raises(GpuError, match="without it the GPU is not touched"):
            created(journal)
    assert list(path.parent.iterdir()) == []
    with opened(path) as writing:
        created(writing)
        with Journal(path, read_only=True) as journal:  # while another process writes
            assert [entry.place for entry in journal.entries(gpu())] == [PLACE]
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with Journal(path, read_only=True) as journal:
        assert [entry.place for entry in journal.entries(gpu())] == [PLACE]
        with pytest.raises(GpuError, match="without it the GPU is not touched"):
            created(journal)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("damage", [garbage, empty, half, a_page])
def test_looking_at_a_damaged_journal_leaves_it(path: Path, damage: Callable[[Path], None]) -> None:
    with opened(path) as journal:
        created(journal)
    damage(path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(GpuError, match=r"the journal is damaged .* sets it aside"):
        Journal(path, read_only=True)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_where_no_file_can_be_there_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuError, match="the journal cannot be opened"):
        opened(tmp_path / "file" / "journal.db")


def test_a_full_disk_is_reported_before_anything_is_done(path: Path) -> None:
    with opened(path) as journal:
        created(journal)
        (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(GpuError, match=r"cannot be used \(.*full\), and without it"):
            journal.begin(gpu(), "o" * 100_000, Op.CREATE, PLACE)
        assert len(journal.entries(gpu())) == 1


@pytest.mark.parametrize("replaced", [False, True])
def test_a_journal_that_was_taken_away_takes_no_more_words(path: Path, replaced: bool) -> None:
    with opened(path) as journal:
        path.rename(path.with_name("elsewhere.db"))
        if replaced:
            opened(path).close()
        with pytest.raises(GpuError, match="without it the GPU is not touched"):
            created(journal)
