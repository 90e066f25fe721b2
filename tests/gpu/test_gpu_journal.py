import os
from contextlib import closing
from pathlib import Path

import pytest

from migrator.core.catalogue import Place, boards
from migrator.core.errors import GpuError
from migrator.gpu.drivers.base import Gpu, GpuInstance
from migrator.gpu.journal import EntryState, Journal

PLACE = Place(4, "3g.20gb")
INSTANCE = GpuInstance(PLACE, 2, "MIG-a")


def gpu(boot_id: str = "boot-1", uuid: str = "GPU-0", driver: str = "mig") -> Gpu:
    return Gpu(0, uuid, "a GPU", boards()["A100-40GB"], boot_id, "1", True, driver)


def opened(path: Path) -> Journal:
    return Journal(path, synchronous="OFF")


def created(journal: Journal, of: Gpu | None = None) -> None:
    journal.set_present(journal.begin_create(of or gpu(), "migrator", PLACE), INSTANCE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_an_intent_is_there_for_the_next_process_before_its_result(path: Path) -> None:
    with opened(path) as journal:
        entry = journal.begin_create(gpu(), "migrator", PLACE)
        with opened(path) as another:
            assert another.entries(gpu()) == (entry,)
            assert (entry.owner, entry.place, entry.state) == ("migrator", PLACE, "creating")
        present = journal.set_present(entry, INSTANCE)
        assert (present.number, present.uuid) == (2, "MIG-a")
        with opened(path) as another:
            assert another.entries(gpu()) == (present,)
            ending = another.begin_destroy(present)
        assert journal.entries(gpu()) == (ending,)
        assert ending.state is EntryState.DESTROYING
        journal.remove(ending)
        assert not journal.entries(gpu())


def test_it_writes_ahead_and_syncs_by_default(path: Path) -> None:
    with Journal(path) as journal:
        assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_an_unfinished_change_is_found_again_until_it_is_ended(path: Path) -> None:
    wanted = (Place(0, "1g.5gb+me"), PLACE)
    with opened(path) as journal:
        journal.begin_change(gpu(), "migrator", (PLACE,), wanted)
    with opened(path) as journal:
        (change,) = journal.unfinished(gpu())
        assert (change.before, change.wanted, change.pid) == ((PLACE,), wanted, os.getpid())
        journal.end_change(change)
        assert not journal.unfinished(gpu())


def test_another_boot_clears_this_gpu_and_driver_only(path: Path) -> None:
    with opened(path) as journal:
        others = gpu(uuid="GPU-1"), gpu(driver="mps")
        for of in (gpu(), *others):
            created(journal, of)
            journal.begin_change(of, "migrator", (), (PLACE,))
        assert not journal.forget_other_boots(gpu())
        assert journal.forget_other_boots(gpu("boot-2")) == (PLACE,)
        assert not journal.entries(gpu())
        assert not journal.unfinished(gpu())
        for of in others:
            assert journal.entries(of)
            assert journal.unfinished(of)


def test_text_that_cannot_be_read_stops_the_command_with_what_to_do(path: Path) -> None:
    with opened(path) as journal:
        created(journal)
    path.write_bytes(path.read_bytes().replace(b"migrator", b"\xedigrator"))
    with opened(path) as journal, pytest.raises(GpuError, match="move the file away, then run the"):
        journal.entries(gpu())


def test_looking_makes_and_changes_no_file(path: Path) -> None:
    with Journal(path, read_only=True) as journal:
        assert journal.entries(gpu()) == ()
        with pytest.raises(GpuError, match="without it the GPU is not touched"):
            created(journal)
    assert list(path.parent.iterdir()) == []
    with opened(path) as writing, closing(Journal(path, read_only=True)) as journal:
        created(writing)
        assert [entry.place for entry in journal.entries(gpu())] == [PLACE]
    for content in (path.read_bytes(), b"this is no database" * 100):
        path.write_bytes(content)
        before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
        if content.startswith(b"SQLite"):
            Journal(path, read_only=True).close()
        else:
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
            journal.begin_create(gpu(), "o" * 100_000, PLACE)
        assert len(journal.entries(gpu())) == 1
