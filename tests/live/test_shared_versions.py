"""Who claims a tenant in the shared store overwrites nothing that others know better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migrator.live.shared_store import SharedStore
from migrator.live.versions import Version, Versions

pytest.importorskip("fsspec", reason="pip install 'migrator[cluster]'")


def added(versions: Versions, content: bytes) -> Version:
    weights = versions.folder.parent / "given"
    weights.parent.mkdir(parents=True, exist_ok=True)
    weights.write_bytes(content)
    return versions.add(weights, None)


def weights_in(folder: Path, number: int) -> Path:
    (found,) = folder.glob(f"versions/photos/{number:06d}-*.safetensors")
    return found


def told_in(store: SharedStore) -> tuple[int, int]:
    """Which version serves by the store, and the highest number that was given."""
    told = json.loads(store.read("versions/photos/serving.json") or b"{}")
    return told["number"], told["highest"]


def test_who_claims_with_an_older_version_gets_the_newer_one_and_overwrites_nothing(
    tmp_path: Path,
) -> None:
    old, new = (
        SharedStore(str(tmp_path / "store"), "g1"),
        SharedStore(str(tmp_path / "store"), "g2"),
    )
    here, there = Versions(tmp_path / "here", "photos"), Versions(tmp_path / "there", "photos")
    first = added(here, b"one")
    assert old.versions.keep(first, here, claim=True) is None
    brought = new.versions.bring(there)
    assert brought is not None
    assert old.versions.keep(added(here, b"two"), here, claim=False) is None
    newer = new.versions.keep(brought, there, claim=True)
    assert newer is not None
    assert (newer.number, newer.weights.read_bytes(), told_in(new)) == (2, b"two", (2, 2))
    assert new.versions.keep(newer, there, claim=True) is None
    assert told_in(new) == (2, 2)
    assert added(there, b"three").number == 3


def test_who_claims_what_was_gone_back_from_elsewhere_goes_back_too(
    tmp_path: Path,
) -> None:
    old, new = (
        SharedStore(str(tmp_path / "store"), "g1"),
        SharedStore(str(tmp_path / "store"), "g2"),
    )
    here, there = Versions(tmp_path / "here", "photos"), Versions(tmp_path / "there", "photos")
    for content in (b"one", b"two"):
        old.versions.keep(added(here, content), here, claim=True)
    new.versions.bring(there)
    new.versions.keep(there.roll_back(2), there, claim=True)
    found = old.versions.keep(here.good()[0], here, claim=True)
    assert found is not None
    assert (found.number, told_in(old)) == (1, (1, 2))


def test_a_claim_takes_the_same_number_with_other_weights_from_the_store(
    tmp_path: Path,
) -> None:
    old, new = (
        SharedStore(str(tmp_path / "store"), "g1"),
        SharedStore(str(tmp_path / "store"), "g2"),
    )
    here, there = Versions(tmp_path / "here", "photos"), Versions(tmp_path / "there", "photos")
    new.versions.keep(added(there, b"shared"), there, claim=True)
    found = old.versions.keep(added(here, b"never shared"), here, claim=True)
    assert found is not None
    assert (found.number, found.weights.read_bytes()) == (1, b"shared")


def test_a_number_is_not_given_again_where_its_weights_are_lost(
    tmp_path: Path,
) -> None:
    old, new = (
        SharedStore(str(tmp_path / "store"), "g1"),
        SharedStore(str(tmp_path / "store"), "g2"),
    )
    here, there = Versions(tmp_path / "here", "photos"), Versions(tmp_path / "there", "photos")
    for content in (b"one", b"two", b"three"):
        old.versions.keep(added(here, content), here, claim=True)
    for number in (1, 2, 3):
        weights_in(tmp_path / "store", number).unlink()
    first = added(there, b"another one")
    assert new.versions.keep(first, there, claim=True) is None
    assert told_in(new) == (1, 3)
    assert added(there, b"four").number == 4
