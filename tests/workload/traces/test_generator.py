"""The generator against the recorded table, everywhere; the table against real traces, if any."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trace_statistics import statistics_of
from migrator.core.errors import InputError
from migrator.workload.traces.generator import KINDS, VARIABLE, ArrivalKind, generate, real_file

LONG_S = 2_000_000
"""200 times the slowest swell."""

MEASURED = {name: kind for name, kind in KINDS.items() if kind.file_name}

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
measured_kinds = pytest.mark.parametrize("kind", MEASURED.values(), ids=MEASURED)


@kinds
def test_a_long_run_follows_the_table(kind: ArrivalKind) -> None:
    measured = kind.measured
    trace = generate(kind.name, mean_rps=measured.mean_rps, seconds=LONG_S, seed=1)
    statistics = statistics_of(trace.counts)
    assert statistics.mean_rps == pytest.approx(measured.mean_rps, rel=0.05)
    assert statistics.dispersion == pytest.approx(measured.dispersion, rel=0.15)
    assert statistics.autocorrelation == pytest.approx(measured.autocorrelation, abs=0.1)
    assert statistics.empty_share == pytest.approx(measured.empty_share, abs=0.02)


@kinds
def test_the_seed_decides(kind: ArrivalKind) -> None:
    def counts(seed: int, seconds: int = 900) -> list[int]:
        return list(generate(kind.name, mean_rps=40.0, seconds=seconds, seed=seed).counts)

    assert counts(3) == counts(3)
    assert counts(3) != counts(4)
    assert counts(3) == counts(3, seconds=1700)[:900]


@measured_kinds
def test_scaling_does_not_reshape(kind: ArrivalKind) -> None:
    native = kind.measured.mean_rps
    drawn = generate(kind.name, mean_rps=native, seconds=600, seed=5)
    tripled = generate(kind.name, mean_rps=3 * native, seconds=600, seed=5)
    assert tripled.counts.tolist() == (3 * drawn.counts).tolist()


def test_kinds_of_one_seed_do_not_swell_together() -> None:
    first, second = (
        generate(kind, mean_rps=100.0, seconds=300_000, seed=9).counts
        for kind in ("twitter", "azure")
    )
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("kind", "near"), [("azur", "azure"), ("Twiter", "twitter"), ("", "poisson"), ("q", "batch")]
)
def test_an_unknown_kind_is_answered_with_names(kind: str, near: str) -> None:
    with pytest.raises(InputError, match=near):
        generate(kind, mean_rps=1.0, seconds=10, seed=0)


@pytest.mark.parametrize(
    ("mean_rps", "seconds", "seed", "named"),
    [
        (0.0, 10, 0, "mean_rps"),
        (-1.0, 10, 0, "mean_rps"),
        (math.nan, 10, 0, "mean_rps"),
        (math.inf, 10, 0, "mean_rps"),
        (1.0, 0, 0, "seconds"),
        (1.0, 10_000_001, 0, "seconds"),
        (1.0, 10, -1, "seed"),
    ],
)
def test_what_cannot_be_generated(mean_rps: float, seconds: int, seed: int, named: str) -> None:
    with pytest.raises(InputError, match=f"^{named}: "):
        generate("azure", mean_rps=mean_rps, seconds=seconds, seed=seed)


@pytest.mark.parametrize("folder", ["", "traces"])
def test_real_traces_are_found(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / folder / "azure_llm2023_conv.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("0,1\n", encoding="utf-8")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert real_file("azure") == path
    assert real_file("twitter") is None
    assert real_file("poisson") is None
