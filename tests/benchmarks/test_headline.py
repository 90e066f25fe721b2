"""The evaluation under one protocol: what its runs are, and pages that are made of their rows."""

import json
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from benchmarks import headline
from benchmarks.headline_page import page
from benchmarks.headline_runs import LOADS, POLICIES, SEEDS, VARIED, Part, runs_of
from benchmarks.headline_scenarios import (
    BUSY,
    WINDOWS,
    Condition,
    Result,
    Run,
    place_of,
    row,
    scenario_of,
)
from migrator.advise.leads import STATIC
from migrator.core.profiles import INTERFERING_PART, profile
from migrator.workload.workloads import GPU, WINDOW_S, all_workloads

NAMES = list(all_workloads())


def of(workload: str, policy: str = "migrator", seed: int = 0, **changed: object) -> Run:
    return Run(workload, Condition(**changed), policy, seed)  # type: ignore[arg-type]


def result(policy: str, goodput: float = 0.5) -> Result:
    ahead = 0.1 if policy == "migrator" else 0.0
    return Result(1000, 1000 * (goodput + ahead), 900.0, 0.4, 0.9, 4, "", 1.0)


def record(part: Part, seeds: int = 1) -> dict[str, object]:
    wanted = runs_of(part, seeds)
    kept = {one.key: row(one, result(one.policy), Path("/nowhere")) for one in wanted}
    about = {"command": "made up", "commit": "c", "code": "d", "traces": "t", "seeds": seeds}
    return {**about, "windows": WINDOWS, "wanted": len(kept), "rows": list(kept.values())}


def test_every_table_of_the_headline_has_all_policies() -> None:
    text = page(Part.HEADLINE, record(Part.HEADLINE, 2))
    tables = text.split("\n## ")[1:]
    (of_oracle,) = (section for section in tables if section.startswith("As good as"))
    (claims,) = (section for section in tables if section.startswith("The claims"))
    tables = [section for section in tables if section not in (of_oracle, claims)]
    assert len(tables) == len(LOADS) + 3
    for section in tables:
        lines = [line for line in section.splitlines() if line.startswith("|")][2:]
        assert {line.split(" | ")[0].removeprefix("| ") for line in lines} == set(POLICIES)
        gains = [line.split(" | ")[7] for line in lines if "| migrator |" not in line]
        assert set(gains) == {"+20.0% (+20.0 to +20.0)"}
    cells = [line.split(" | ") for line in of_oracle.splitlines() if "migrator" in line]
    assert len(cells) == 2 * (2 + len(LOADS))
    assert cells[0][:4] == ["| both steady, load 0.8", "migrator", "40", "120.0% (120.0 to 120.0)"]
    assert {line[3] for line in cells if line[1] == "migrator-paper"} == {"100.0% (100.0 to 100.0)"}
    judged = [line.split(" | ") for line in claims.splitlines() if "+20.0% (+20.0" in line]
    answers = {(line[0].removeprefix("| "), line[4]) for line in judged}
    assert answers >= {("ekya", "yes"), ("astraea", "no"), ("best static split", "yes")}
    assert {peer for peer, _ in answers} == {"ekya", "astraea", "paris-reconfiguring", STATIC}
    assert "runs are missing" not in text


@pytest.mark.parametrize("part", Part)
def test_what_is_finished_first_are_whole_workloads_of_the_first_seed(part: Part) -> None:
    runs = runs_of(part, 2)
    assert len({(one.key, one.condition) for one in runs}) == len(runs)
    order = [(one.seed, one.workload) for one in runs]
    assert len([name for name, _ in groupby(order)]) == len(set(order))
    assert [seed for seed, _ in groupby(one.seed for one in runs)] == [0, 1]


def test_a_page_says_how_many_runs_it_lacks() -> None:
    part = record(Part.ABLATION)
    rows = part["rows"]
    assert isinstance(rows, list)
    text = page(Part.ABLATION, {**part, "rows": rows[:-7]})
    assert f"**7 of {len(rows)} runs are missing**" in text


def test_the_sensitivity_has_a_line_per_value() -> None:
    text = page(Part.SENSITIVITY, record(Part.SENSITIVITY))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 3 + sum(map(len, VARIED.values()))
    assert all("+20.0" in line for line in lines[2:])


def test_retrainings_are_as_long_as_the_whole_data_gives(tmp_path: Path) -> None:
    whole, cut = (scenario_of(of("W7", whole=whole), tmp_path) for whole in (True, False))
    for tenant, other in zip(whole.tenants, cut.tenants, strict=True):
        long, short = tenant.drifts[0].seconds, other.drifts[0].seconds
        assert long is not None
        assert short is not None
        assert long.at(16) == pytest.approx(profile(tenant.name, GPU).training_s(12 * 10400).at(16))
        assert short.at(16) == pytest.approx(profile(tenant.name, GPU).training_s(12 * 2400).at(16))


def test_no_two_runs_have_the_same_pair_of_places(tmp_path: Path) -> None:
    runs = [of(name, seed=seed) for name in NAMES for seed in range(SEEDS[Part.HEADLINE])]
    pairs = [tuple(place_of(one, place, tmp_path) for place in (0, 1)) for one in runs]
    assert len(set(pairs)) == len(runs)
    places = sorted({place for pair in pairs for place in pair})
    assert len({kind for kind, _ in places}) == 6
    for (kind, begin), (other, later) in pairwise(places):
        assert kind != other or later - begin >= WINDOWS * WINDOW_S


def test_every_tenant_has_its_part_of_the_load(tmp_path: Path) -> None:
    for count in (2, 5):
        made = scenario_of(of("P4", tenants=count), tmp_path)
        assert len({tenant.name for tenant in made.tenants}) == count
        for tenant in made.tenants:
            whole = tenant.service.capability_rps(16) * 7
            came = tenant.trace.counts[tenant.offset_s : tenant.offset_s + 800].mean()
            assert came == pytest.approx(0.8 / count * whole, rel=0.01)


def test_policies_are_not_run_again_under_what_they_do_not_notice() -> None:
    for unnoticed in (
        of("W1", "migrator", interference=0.0),
        of("W1", "ekya", instances=0.1),
        of("W1", "paris", error=0.5, estimates=0.1),
    ):
        assert unnoticed.key == of("W1", unnoticed.policy).key
    for noticed in (
        of("W1", "migrator", instances=0.1),
        of("W1", "migrator", error=0.5),
        of("W1", "ekya", interference=0.0),
        of("W1", "paris", slower=1.1),
    ):
        assert noticed.key != of("W1", noticed.policy).key


def test_instances_as_slow_as_shares_with_busy_neighbours(tmp_path: Path) -> None:
    plain, busy = (
        scenario_of(of("P1", instances=part), tmp_path).tenants[0] for part in (0.0, BUSY)
    )
    measured = plain.service.profile
    small = busy.service.latency_s(1, 16) / plain.service.latency_s(1, 16)
    assert small == pytest.approx(1 + measured.interference * (116 / 132) / INTERFERING_PART)
    assert busy.service.latency_s(1, 132) == plain.service.latency_s(1, 132)
    assert busy.trace.counts.tolist() == plain.trace.counts.tolist()


def test_an_interrupted_evaluation_goes_on_and_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MIGRATOR_DATA", str(tmp_path))
    kept, page, rows = (tmp_path / name for name in ("kept.jsonl", "headline.md", "headline.json"))
    asked = ["headline", "--only", "P1", "--policies", "equal-mig,ekya", "--seeds", "1"]
    asked += ["--out", str(tmp_path), "--processes", "1"]

    def evaluate(*more: str, keep: Path = kept) -> int:
        monkeypatch.setattr("sys.argv", [*asked, "--keep", str(keep), *more])
        return headline.main()

    assert evaluate("--for-s", "0.01") == 0
    assert len(kept.read_text().splitlines()) == 1 + 1
    # a workload without all of its runs is not in the tables
    assert json.loads(rows.read_text())["rows"] == []
    assert "**8 of 8 runs are missing**" in page.read_text()
    first = tmp_path / "first.jsonl"
    first.write_bytes(kept.read_bytes())
    with kept.open("a") as file:
        file.write('{"cell": "P1, ek')  # as a killed process leaves it
    assert evaluate() == 0
    made, record = page.read_text(), json.loads(rows.read_text())
    assert len(record["rows"]) == record["wanted"] == 8
    assert {one["policy"] for one in record["rows"]} == {"equal-mig", "ekya"}
    assert record["code"] in made
    finished = kept.read_bytes()
    assert evaluate("--rows") == 0
    assert kept.read_bytes() == finished
    assert page.read_text() == made
    assert evaluate("--merge", str(kept), keep=first) == 0
    assert first.read_bytes() == finished
    assert page.read_text() == made
    other = tmp_path / "other.jsonl"
    other.write_bytes(finished.replace(record["code"].encode(), b"0" * 16))
    assert evaluate("--merge", str(other)) == 2
    assert "other.jsonl has runs of other code" in capsys.readouterr().err
    assert kept.read_bytes() == finished


def test_without_traces_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MIGRATOR_DATA", raising=False)
    monkeypatch.setattr("sys.argv", ["headline"])
    assert headline.main() == 2
    assert "MIGRATOR_DATA" in capsys.readouterr().err
