"""What is served after a restart, whatever has become of the file, the scenario and its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_daemon import scenario_file, section

from migrator.core.errors import InputError
from migrator.live.stored_tenants import StoredTenants
from migrator.workload.live import LiveScenario, read_live


def _live(folder: Path, *tenants: str) -> LiveScenario:
    return read_live(scenario_file(folder, *tenants))


def _stored(folder: Path, *tenants: str) -> StoredTenants:
    return StoredTenants(folder / "state" / "tenants.json", _live(folder, *tenants))


def _names(stored: StoredTenants) -> list[str]:
    return [tenant.name for tenant in stored.live.tenants]


def test_added_and_removed_ones_are_remembered(tmp_path: Path) -> None:
    stored = _stored(tmp_path, "a", "b")
    assert _names(stored) == ["a", "b"]
    stored.add("c", section(tmp_path, "c", slo_ms=1234), tmp_path)
    stored.remove("a")
    again = _stored(tmp_path, "a", "b")
    assert (_names(again), again.removed, again.names) == (["b", "c"], ["a"], ["a", "b", "c"])
    assert again.of("c").tenants[0].service.slo_s == 1.234
    again.restore("a")
    assert _names(_stored(tmp_path, "a", "b")) == ["a", "b", "c"]


def test_the_entry_of_the_scenario_counts_once_there_is_one(tmp_path: Path) -> None:
    _stored(tmp_path, "a").add("c", section(tmp_path, "c", slo_ms=1234), tmp_path)
    assert _stored(tmp_path, "a", "c").of("c").tenants[0].service.slo_s == 2.0


def test_one_whose_files_are_gone_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "profiles.json").write_bytes(
        (scenario_file(tmp_path, "a").parent / "profiles.json").read_bytes()
    )
    _stored(tmp_path, "a").add("c", section(tmp_path, "c"), tmp_path / "own")
    assert _names(_stored(tmp_path, "a")) == ["a", "c"]
    (tmp_path / "own" / "profiles.json").unlink()
    stored = _stored(tmp_path, "a")
    assert (_names(stored), "there is no file" in stored.unusable["c"]) == (["a"], True)


def test_one_that_the_scenario_leaves_no_room_for_is_left_out(tmp_path: Path) -> None:
    _stored(tmp_path, "a").add("c", section(tmp_path, "c", min_gpcs=7), tmp_path)
    assert "c: it needs an instance of 7g" in _stored(tmp_path, "a").unusable["c"]


def test_if_nothing_is_left_the_daemon_does_not_start(tmp_path: Path) -> None:
    stored = _stored(tmp_path, "a", "b")
    stored.remove("a")
    with pytest.raises(InputError, match="every tenant of the scenario was removed"):
        _stored(tmp_path, "a")


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2}', '{"added": {"c": 1}}'])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tenants.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"tenants\.json: cannot read which tenants"):
        _stored(tmp_path, "a")


def test_an_added_one_may_take_the_place_of_one_of_the_scenario(tmp_path: Path) -> None:
    stored = _stored(tmp_path, "a", "b")
    stored.remove("a")
    stored.add("a", section(tmp_path, "a", slo_ms=1234), tmp_path)
    again = _stored(tmp_path, "a", "b")
    assert _names(again) == ["b", "a"]
    assert again.of("a").tenants[0].service.slo_s == 1.234
