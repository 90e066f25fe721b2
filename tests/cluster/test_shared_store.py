"""Weights and labels where other machines find them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from migrator.cluster import shared_store
from migrator.cluster.shared_files import SharedFiles, read_bytes
from migrator.cluster.shared_store import SharedStore
from migrator.core.errors import InputError
from migrator.live.labels import LabelCounts, Labels, NotKeptError, SampleRow, sample_row
from migrator.live.tenant_store import NotOwnerError
from migrator.live.versions import Version, Versions


def row(request: str, tenant: str = "photos", window: int = 2) -> SampleRow:
    return sample_row(tenant, window, np.arange(6, dtype=np.uint8), 3, 4, request)


Store = Callable[[str, str], SharedStore]


@pytest.fixture
def store_at() -> Iterator[Store]:
    """Stores at addresses, closed at the end."""
    pytest.importorskip("fsspec", reason="pip install 'migrator-gpu[cluster]'")
    with ExitStack() as stack:

        def made(url: str, writer: str) -> SharedStore:
            return stack.enter_context(closing(SharedStore(url, writer)))

        yield made


def rows_in(store: SharedStore, tenant: str = "photos") -> list[SampleRow]:
    """All labels of a tenant, as another machine reads them."""
    with closing(SharedStore(store.url, "reader")) as reader:
        return list(reader.labels.fresh(tenant).rows)


def requests(store: SharedStore, tenant: str = "photos") -> list[str]:
    return [label.request for label in rows_in(store, tenant)]


def test_labels_of_all_daemons_are_read_as_they_were_written(
    tmp_path: Path, store_at: Store
) -> None:
    first, second = store_at(str(tmp_path), "g1"), store_at(str(tmp_path), "g2")
    first.labels.keep([row("a"), row("b", "mail")])
    second.labels.keep([row("c")])
    first.labels.keep([row("d")])
    rows = rows_in(first)
    assert rows[0] == row("a")
    assert sorted(label.request for label in rows) == ["a", "c", "d"]
    assert requests(first, "mail") == ["b"]
    assert requests(first, "unknown") == []


def test_what_a_crash_cut_off_costs_only_itself(tmp_path: Path, store_at: Store) -> None:
    store = store_at(str(tmp_path), "g1")
    store.labels.keep([row("a")])
    store.labels.keep([row("b")])
    (path,) = (tmp_path / "labels" / "photos").iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert requests(store) == ["a"]


def test_after_a_failed_write_labels_go_to_another_file(tmp_path: Path, store_at: Store) -> None:
    """Half a record may be at the end of the old one, and hide what came after."""
    store = store_at(str(tmp_path), "g1")
    store.labels.keep([row("a")])
    with (tmp_path / "labels" / "photos").joinpath("x").open("wb") as broken:
        files = store.labels._open
        files["photos"].write(b"half a record")
        files["photos"].flush()
        broken.close()
        files["photos"].close()
        files["photos"] = broken
        with pytest.raises(ValueError, match="closed"):
            store.labels.keep([row("lost")])
    store.labels.keep([row("b")])
    assert requests(store) == ["a", "b"]


def test_the_oldest_learned_files_go_when_there_is_too_much(
    tmp_path: Path, store_at: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_store, "FILE_BYTES", 1)
    monkeypatch.setattr(shared_store, "KEPT_BYTES", 400)
    store = store_at(str(tmp_path), "g1")
    for number in range(20):
        store.labels.keep([row(f"r{number}")], lambda _: 2)
    assert len(requests(store)) == 20, "window 2 is not learned yet"
    store.labels.keep([row("last")], lambda _: 3)
    kept = requests(store)
    assert kept[-1] == "last"
    assert 2 <= len(kept) < 10


def test_in_an_object_store_every_commit_is_an_object(store_at: Store) -> None:
    store = store_at("memory://store-of-labels", "g1")
    store.labels.keep([row("a"), row("b")])
    store.labels.keep([row("c")])
    assert requests(store) == ["a", "b", "c"]
    fsspec: Any = import_module("fsspec")
    assert len(fsspec.filesystem("memory").find("/store-of-labels/labels/photos")) == 2
    store.files.write("map.json", b"{}")
    assert read_bytes("memory://store-of-labels/map.json") == b"{}"


@pytest.mark.parametrize("url", ["{tmp}/store", "memory://store-of-weights"])
def test_weights_that_served_are_what_a_tenant_begins_with_elsewhere(
    tmp_path: Path, store_at: Store, url: str
) -> None:
    store = store_at(url.format(tmp=tmp_path), "g1")
    weights = tmp_path / "some.safetensors"
    here, there = Versions(tmp_path / "here", "photos"), Versions(tmp_path / "there", "photos")
    assert store.versions.bring(there) is None
    for content in (b"one", b"two", b"three", b"four"):
        weights.write_bytes(content)
        version = here.add(weights, 0.5, {"window": 7})
        store.versions.keep(version, here, claim=True)
    elsewhere = store.versions.bring(there)
    assert elsewhere is not None
    assert (elsewhere.number, elsewhere.weights.read_bytes()) == (4, b"four")
    assert (elsewhere.accuracy, elsewhere.about) == (0.5, {"window": 7})
    assert there.earlier(4) == (3, 2)
    assert store.versions.bring(there) == elsewhere
    weights.write_bytes(b"five")
    assert there.add(weights, None).number == 5


Machines = tuple[SharedStore, SharedStore, Versions, Versions]


@pytest.fixture
def machines(tmp_path: Path, store_at: Store) -> Machines:
    """One store and the versions on the disks of two machines."""
    old, new = (store_at(str(tmp_path / "store"), writer) for writer in ("g1", "g2"))
    return old, new, Versions(tmp_path / "here", "photos"), Versions(tmp_path / "there", "photos")


def added(versions: Versions, content: bytes) -> Version:
    weights = versions.folder.parent / "given"
    weights.parent.mkdir(parents=True, exist_ok=True)
    weights.write_bytes(content)
    return versions.add(weights, None)


def weights_in(folder: Path, number: int) -> Path:
    (path,) = folder.glob(f"versions/photos/{number:06d}-*.safetensors")
    return path


def test_damaged_weights_are_passed_over_and_refused_by_name_where_nothing_is_left(
    tmp_path: Path, machines: Machines
) -> None:
    store, _, here, _ = machines
    for content in (b"one", b"two"):
        store.versions.keep(added(here, content), here, claim=True)
    weights_in(tmp_path / "store", 2).write_bytes(b"damaged")
    version = store.versions.bring(Versions(tmp_path / "there", "photos"))
    assert version is not None
    assert version.weights.read_bytes() == b"one"
    weights_in(tmp_path / "store", 1).write_bytes(b"damaged")
    with pytest.raises(InputError, match="damaged"):
        store.versions.bring(Versions(tmp_path / "elsewhere", "photos"))


def test_a_tenant_goes_back_wherever_it_lives_and_stays_back_wherever_it_goes(
    tmp_path: Path, machines: Machines
) -> None:
    store, _, here, there = machines
    for content in (b"one", b"two"):
        store.versions.keep(added(here, content), here, claim=True)
    store.versions.bring(there)
    back = there.roll_back(2)
    assert back.weights.read_bytes() == b"one"
    store.versions.keep(back, there, claim=True)
    version = store.versions.bring(here)  # where the other one is a good version still
    assert version is not None
    assert version.number == 1
    assert added(here, b"three").number == 3
    fresh = Versions(tmp_path / "fresh", "photos")
    store.versions.bring(fresh)
    assert added(fresh, b"three").number == 3  # a number that was withdrawn is not given again


def test_what_was_withdrawn_while_the_store_was_away_stays_so(machines: Machines) -> None:
    store, _, here, _ = machines
    for content in (b"one", b"two"):
        store.versions.keep(added(here, content), here, claim=True)
    here.roll_back(2)
    version = store.versions.bring(here)
    assert version is not None
    assert version.number == 1


def test_versions_that_the_store_never_saw_are_kept(machines: Machines) -> None:
    store, _, here, _ = machines
    store.versions.keep(added(here, b"one"), here, claim=True)
    added(here, b"two")
    version = store.versions.bring(here)
    assert version is not None
    assert version.number == 2


def test_a_daemon_that_was_given_up_does_not_overrule_the_one_that_serves(
    machines: Machines,
) -> None:
    old, new, here, there = machines
    old.versions.keep(added(here, b"one"), here, claim=True)
    new.versions.bring(there)
    new.versions.keep(there.good()[0], there, claim=True)
    with pytest.raises(NotOwnerError, match="g2"):
        old.versions.keep(added(here, b"of the one that was given up"), here, claim=False)
    new.versions.keep(added(there, b"two"), there, claim=False)
    version = new.versions.bring(here)
    assert version is not None
    assert version.weights.read_bytes() == b"two"  # under the same number


def test_labels_of_others_are_brought_once_however_often_they_are_asked_for(
    tmp_path: Path, store_at: Store
) -> None:
    for url in (str(tmp_path / "store"), "memory://store-of-fresh-labels"):
        first, second = store_at(url, "g1"), store_at(url, "g2")
        first.labels.keep([row("a")])
        assert brought(second) == ["a"]
        assert brought(second) == []
        first.labels.keep([row("b")])
        second.labels.keep([row("own")])
        assert brought(second) == ["b"]


def brought(store: SharedStore) -> list[str]:
    fresh = store.labels.fresh("photos")
    store.labels.mark_brought(fresh)
    return [label.request for label in fresh.rows]


def test_labels_of_others_are_returned_again_until_they_are_brought(
    tmp_path: Path, store_at: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [store_at(str(tmp_path), writer) for writer in ("g1", "g2", "g3")]
    first, second, ours = stores
    first.labels.keep([row("a")])
    assert brought(ours) == ["a"]
    first.labels.keep([row("b")])
    second.labels.keep([row("c")])
    with monkeypatch.context() as away:
        away.setattr(SharedFiles, "read_many", _fails)
        with pytest.raises(OSError, match="No space"):
            ours.labels.fresh("photos")
    ours.labels.fresh("photos")  # the caller could not store them
    assert brought(ours) == ["b", "c"]


def _fails(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_in_an_object_store_the_labels_of_every_tenant_are_trimmed(
    store_at: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_store, "KEPT_BYTES", 400)
    monkeypatch.setattr(shared_store, "COMMITS", 10)
    store = store_at("memory://store-of-many-labels", "g1")
    for number in range(50):
        store.labels.keep([row(f"r{number}"), row(f"r{number}", "mail")], lambda _: 3)
    for tenant in ("photos", "mail"):
        assert requests(store, tenant)[-1] == "r49"
        assert len(requests(store, tenant)) < 20


def test_windows_go_on_being_counted_when_a_cluster_is_started_again(
    tmp_path: Path, store_at: Store
) -> None:
    store = store_at(str(tmp_path), "head")
    assert store.windows_since_s(1000.0, 200.0) == 1000.0
    assert store.windows_since_s(9000.0, 200.0) == 1000.0
    longer = store.windows_since_s(9000.0, 400.0)
    assert (9000.0 - longer) / 400.0 == 41.0  # after window 40, which had begun


def test_an_address_that_cannot_be_used_is_named(store_at: Store) -> None:
    with pytest.raises(InputError, match="nowhere://"):
        store_at("nowhere://at/all", "g1")


def test_a_label_is_acknowledged_only_once_it_is_shared(tmp_path: Path, store_at: Store) -> None:
    store = store_at(str(tmp_path / "store"), "g1")

    async def add() -> bool:
        labels = Labels(tmp_path / "labels.db", share=store.labels.keep)
        picture = np.arange(6, dtype=np.uint8)
        new = await labels.add("photos", 2, picture, 3, 4, "a")
        assert requests(store) == ["a"]
        assert not await labels.add("photos", 2, picture, 3, 4, "a")
        await labels.close()
        return new

    assert asyncio.run(add())
    assert requests(store) == ["a"]


async def test_a_label_that_cannot_be_shared_is_not_kept_and_may_be_sent_again(
    tmp_path: Path,
) -> None:
    fails = [True]

    def share(_: object) -> None:
        if fails.pop():
            raise OSError(28, "No space left on device")

    labels = Labels(tmp_path / "labels.db", share=share)
    picture = np.arange(6, dtype=np.uint8)
    with pytest.raises(NotKeptError, match="No space left"):
        await labels.add("photos", 2, picture, 3, 4, "a")
    assert labels.counts("photos", 2) == LabelCounts()
    fails.append(False)
    assert await labels.add("photos", 2, picture, 3, 4, "a")
    await labels.close()


async def test_labels_that_are_brought_are_counted_once_and_not_shared_again(
    tmp_path: Path,
) -> None:
    shared: list[object] = []
    labels = Labels(tmp_path / "labels.db", share=shared.append)
    assert await labels.bring([row("a"), row("b"), row("a")]) == 2
    assert await labels.bring([row("b")]) == 0
    assert labels.counts("photos", 2) == LabelCounts(2, 2, 2)
    await labels.close()
    assert shared == []


def serving(store: SharedStore) -> tuple[int, int]:
    """The version that serves by the store, and the highest number that was given."""
    entry = json.loads(store.files.read("versions/photos/serving.json") or b"{}")
    return entry["number"], entry["highest"]


def test_who_claims_with_an_older_version_gets_the_newer_one_and_overwrites_nothing(
    machines: Machines,
) -> None:
    old, new, here, there = machines
    first = added(here, b"one")
    assert old.versions.keep(first, here, claim=True) is None
    brought = new.versions.bring(there)
    assert brought is not None
    assert old.versions.keep(added(here, b"two"), here, claim=False) is None
    newer = new.versions.keep(brought, there, claim=True)
    assert newer is not None
    assert (newer.number, newer.weights.read_bytes(), serving(new)) == (2, b"two", (2, 2))
    assert new.versions.keep(newer, there, claim=True) is None
    assert serving(new) == (2, 2)
    assert added(there, b"three").number == 3


def test_who_claims_what_was_gone_back_from_elsewhere_goes_back_too(machines: Machines) -> None:
    old, new, here, there = machines
    for content in (b"one", b"two"):
        old.versions.keep(added(here, content), here, claim=True)
    new.versions.bring(there)
    new.versions.keep(there.roll_back(2), there, claim=True)
    version = old.versions.keep(here.good()[0], here, claim=True)
    assert version is not None
    assert (version.number, serving(old)) == (1, (1, 2))


def test_a_claim_takes_the_same_number_with_other_weights_from_the_store(
    machines: Machines,
) -> None:
    old, new, here, there = machines
    new.versions.keep(added(there, b"shared"), there, claim=True)
    version = old.versions.keep(added(here, b"never shared"), here, claim=True)
    assert version is not None
    assert (version.number, version.weights.read_bytes()) == (1, b"shared")


def test_a_number_is_not_given_again_where_its_weights_are_lost(
    tmp_path: Path, machines: Machines
) -> None:
    old, new, here, there = machines
    for content in (b"one", b"two", b"three"):
        old.versions.keep(added(here, content), here, claim=True)
    for number in (1, 2, 3):
        weights_in(tmp_path / "store", number).unlink()
    first = added(there, b"another one")
    assert new.versions.keep(first, there, claim=True) is None
    assert serving(new) == (1, 3)
    assert added(there, b"four").number == 4
