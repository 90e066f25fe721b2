"""dashboard, and the records of simulations that it shows."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.gpu_cli import migrator, refused
from support.live_records import Made, write_run
from support.live_scenarios import live_file
from support.page_server import shown

from migrator.records.store import read_records, read_runs


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return live_file(tmp_path_factory.mktemp("scenario"), (20, 30, 25, 20), window_s=2)


def test_files_folders_and_served_scenarios_are_sources_and_nothing_can_be_done(
    tmp_path: Path,
) -> None:
    folder, other = tmp_path / "state" / "live" / "small", tmp_path / "one" / "records.db"
    for path in (folder / "records.db", other):
        write_run(path, Made(ends=True))
    with shown(folder / "records.db", folder, tmp_path / "state", other) as url:
        sources = httpx.get(f"{url}/dashboard/sources", timeout=20).json()["sources"]
        assert [(source["name"], len(source["runs"])) for source in sources] == [
            *[("small", 1)] * 3,
            ("one", 1),
        ]
        assert httpx.get(url, timeout=20).status_code == 200
        assert not httpx.get(f"{url}/dashboard/about", timeout=20).json()["acts"]
        answer = httpx.post(f"{url}/admin/actions", json={"action": "pause"}, timeout=20)
        assert answer.status_code == 404


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    said = refused("dashboard", "nothing-of-that-name", "--state", tmp_path)
    assert said.startswith("RECORDS: there is no file, folder or served scenario")
    assert "nothing was served" in refused("dashboard", "--state", tmp_path)


def test_simulate_writes_a_run_per_policy(scenario: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    policies = "static-4-3,equal-mps"
    done = migrator("simulate", scenario, "--policy", policies, "--records", path)
    assert (done.code, done.err) == (0, "")
    assert f"migrator dashboard {path}" in done.out
    assert [run.policy for run in read_runs(path)] == ["static-4-3", "equal-mps"]
    shares, instances = read_records(path), read_records(path, 1)
    assert {unit.start for unit in shares.units} == {None}
    assert None not in {unit.start for unit in instances.units}
    assert sum(second.received for second in shares.seconds) == 3 * (20 + 30 + 25 + 20)


def test_records_that_cannot_be_written_are_refused_before_the_run(
    scenario: Path, tmp_path: Path
) -> None:
    said = refused("simulate", scenario, "--records", tmp_path / "runs.txt")
    assert said == "--records: 'runs.txt' must end in .db"
