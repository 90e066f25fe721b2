"""Whether one more tenant fits, by slices and by memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.live_daemon import scenario_file

from migrator.core.catalogue import board
from migrator.core.profiles import Service, on_board
from migrator.live.room import NoRoomError, require_room
from migrator.workload.live import read_live

SHARES = board("H200-141GB-MPS")


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return read_live(scenario_file(tmp_path, "a")).tenants[0].service


def _named(service: Service, name: str, min_gpcs: int = 1) -> Service:
    return replace(service, tenant=name, min_gpcs=min_gpcs)


def test_the_refusal_names_what_would_do(service: Service) -> None:
    others = [_named(service, "a", 4), _named(service, "b", 2)]
    require_room(_named(service, "c", 1), others, board("A100-40GB"))
    with pytest.raises(NoRoomError) as refused:
        require_room(_named(service, "c", 2), others, board("A100-40GB"))
    assert str(refused.value) == (
        "c: it needs an instance of 2g, 3g, 4g or 7g by min_gpcs, memory and objective, and beside "
        "the smallest ones of a (4g) and b (2g) A100-40GB has room for only 1g; remove a or b, or "
        "use a smaller model"
    )


def test_workers_that_share_the_memory_must_fit_together(service: Service) -> None:
    held = {1: 2000.0, 2: 3000.0, 4: 5000.0}
    profile = on_board(replace(service.profile, worker_held_mib=held), SHARES.name)
    first = replace(service, profile=profile)
    second = replace(first, tenant="b")
    require_room(second, [first], SHARES, 10_000)
    with pytest.raises(NoRoomError, match=r"holds 5,000 MiB, .* has 3,500 MiB left; use a smaller"):
        require_room(second, [first], SHARES, 8_500)
