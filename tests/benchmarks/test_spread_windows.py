"""Windows spread over pairs of traces: where they begin, and how much comes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.spread_windows import MODELS, SpreadWindow
from benchmarks.traces import arrivals, generated_kinds
from migrator.core.errors import InputError
from migrator.core.scenario import Trace
from migrator.reproduce.sources import offset
from migrator.workload.capacity import highest_rps
from migrator.workload.traces.generator import KINDS

PAIR = ("azure", "azure-bursty")


def flat(seconds: int) -> Trace:
    return Trace("flat", np.ones(seconds, dtype=np.int64))


def write(folder: Path, kind: str, seconds: int = 1000) -> None:
    """A trace file as if it were the one the kind was measured on."""
    rows = "".join(f"{second},{second % 3}\n" for second in range(seconds))
    path = folder / str(KINDS[kind].file_name)
    path.write_text(f"second,count\n{rows}", encoding="utf-8")


@given(seconds=st.integers(800, 50_000), of=st.integers(2, 40))
def test_windows_reach_from_the_first_history_to_the_traces_end(seconds: int, of: int) -> None:
    begins = [offset(flat(seconds), number, of) for number in range(of)]
    assert begins[0] == 600
    assert begins[-1] == seconds - 200
    steps = np.diff(begins)
    assert steps.max() - steps.min() <= 1


def test_one_window_is_the_first_and_a_short_trace_has_none() -> None:
    assert offset(flat(5000), 0, 1) == 600
    assert offset(flat(5000), 3, 4, windows=2) == 4600
    with pytest.raises(InputError, match=r"flat: its 799 s .* longer trace"):
        offset(flat(799), 0, 4)


def test_the_load_is_the_whole_traces_and_not_the_windows() -> None:
    made = SpreadWindow(PAIR, 3, 4, load=0.5)(0, None)
    assert [tenant.name for tenant in made.tenants] == list(MODELS)
    assert (made.windows, made.window_s, made.prepared) == (1, 200.0, True)
    for tenant, kind in zip(made.tenants, PAIR, strict=True):
        assert tenant.trace.seconds == KINDS[kind].measured.seconds
        assert tenant.offset_s == tenant.trace.seconds - 200
        most = highest_rps(tenant.service, made.board)
        assert tenant.trace.mean_rps == pytest.approx(0.25 * most, rel=1e-3)
        assert tenant.drifts == ()
    other = SpreadWindow(PAIR, 0, 4, load=0.5)(0, None)
    assert np.array_equal(other.tenants[0].trace.counts, made.tenants[0].trace.counts)
    seeded = SpreadWindow(PAIR, 3, 4, load=0.5)(1, None)
    assert not np.array_equal(seeded.tenants[0].trace.counts, made.tenants[0].trace.counts)


def test_retrainings_take_their_turn() -> None:
    first, second, fifth = (
        SpreadWindow(PAIR, n, 8, retrain=True)(0, None).tenants[0].drifts for n in (0, 1, 4)
    )
    assert first == fifth
    assert first[1] == second[0] != first[0]


def test_what_the_folder_lacks_is_generated(tmp_path: Path) -> None:
    write(tmp_path, "azure")
    pairs = (PAIR, ("twitter", "azure"))
    assert generated_kinds(pairs, tmp_path) == ("azure-bursty", "twitter")
    assert generated_kinds(pairs, None) == ("azure", "azure-bursty", "twitter")
    assert arrivals("azure", tmp_path, 0).seconds == 1000
    bursty = arrivals("azure-bursty", tmp_path, 0)
    assert np.array_equal(bursty.counts, arrivals("azure-bursty", None, 0).counts)
