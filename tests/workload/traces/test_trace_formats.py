"""Every format, recognised and read; expected counts are by hand."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from migrator.core.scenario import Trace
from migrator.workload.traces.formats import formats, load_trace

MINUTES = ",".join(str(minute) for minute in range(1, 1441))

EXAMPLES = {
    "second-counts": ["second,count", "0,3", "1,0", "4,2"],
    "timestamps": ["10.5", "10.9", "12.0"],
    "azure-llm": [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:46.9999999,396,109",
        "2023-11-16 18:15:48.0000000,879,55",
    ],
    "azure-functions": [
        f"HashOwner,HashApp,HashFunction,Trigger,{MINUTES}",
        "a1,b1,c1,http," + ",".join(["0", "6"] + ["0"] * 1438),
        "a1,b1,c2,timer," + ",".join(["1", "4"] + ["0"] * 1437 + ["2"]),
    ],
    "alibaba-v2017": [
        "0,20,1,1,1,Terminated,50,0.005",
        "41562,41618,74,364,4,Terminated,50,0.0058",
        "41562,41618,74,365,4,Failed,,",
        "41564,41618,74,366,4,Waiting,50,0.0058",
    ],
    "alibaba-v2018": [
        "M1,1,j_1,1,Terminated,86400,86420,100,0.2",
        "R2_1,1,j_1,1,Running,86402,0,50,0.2",
        "task_x,1,j_2,3,Waiting,,,,",
        "M1,2,j_3,1,Terminated,86402,86500,100,",
    ],
    "servegen": ["0,0.5,0.9,Gamma,2.0,0.05", "20,0,0,,0,0", "40,0.25,1.1,Weibull,1.5,0.02"],
}

COUNTS = {
    "second-counts": [3, 0, 0, 0, 2],
    "timestamps": [2, 0, 1],
    "azure-llm": [2, 0, 1],
    "alibaba-v2017": [2, 0, 1],
    "alibaba-v2018": [1, 0, 2],
}

each_format = pytest.mark.parametrize("name", EXAMPLES)


def written(folder: Path, lines: list[str], name: str = "some.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@each_format
def test_one_format_recognises_it(name: str) -> None:
    first = EXAMPLES[name][:2]
    assert [key for key, trace_format in formats().items() if trace_format.recognises(first)] == [
        name
    ]


@each_format
def test_recognised_and_read(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, EXAMPLES[name])
    trace = load_trace(path)
    assert trace.name == "some"
    assert same(trace, formats()[name].load(path))
    if name in COUNTS:
        assert trace.counts.tolist() == COUNTS[name]


@each_format
def test_packed_windows_lines_byte_order_mark_and_blank_lines(name: str, tmp_path: Path) -> None:
    plain = load_trace(written(tmp_path, EXAMPLES[name]))
    packed = tmp_path / "some.csv.gz"
    text = "\ufeff" + "\r\n\r\n".join(EXAMPLES[name])
    packed.write_bytes(gzip.compress(text.encode()))
    assert load_trace(packed).name == "some"
    assert same(load_trace(packed), plain)


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        (["1600000000,1", "1600000002,2"], [1, 0, 2]),
        (["5,1", "3,2", "5,4"], [2, 0, 5]),
        (["-1,1", "1,1"], [1, 0, 1]),
        (['"second","count"', '"0","7"'], [7]),
        (["time,requests", "0.0,2.0"], [2]),
        (["0, 2", "1 ,0", " 2,0"], [2, 0, 0]),
    ],
)
def test_second_counts(lines: list[str], counts: list[int], tmp_path: Path) -> None:
    assert load_trace(written(tmp_path, lines)).counts.tolist() == counts


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        (["1700000002", "1700000000.99", "1700000002.5"], [1, 0, 2]),
        (["timestamp", "3.5", "3.6"], [2]),
        (["arrival time", "2023-11-16T23:59:59.5", "2023-11-17 00:00:01"], [1, 0, 1]),
        (["2023-11-16T12:00:00Z", "2023-11-16T14:00:01+02:00"], [1, 1]),
        (["20231116T120000", "2023-11-16T12:00"], [2]),
    ],
)
def test_timestamps(lines: list[str], counts: list[int], tmp_path: Path) -> None:
    assert load_trace(written(tmp_path, lines)).counts.tolist() == counts


def test_azure_llm_with_offset_and_further_columns(tmp_path: Path) -> None:
    lines = [
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens",
        "2024-05-10 00:00:01.009930+00:00,0,2162,5",
        "2024-05-10 00:00:00.017335+00:00,2,2399,6",
    ]
    assert load_trace(written(tmp_path, lines)).counts.tolist() == [1, 1]


def test_many_blocks_are_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.workload.traces.reading._BLOCK_CHARS", 64)
    lines = [f"{second},{second % 7}" for second in range(700)]
    trace = load_trace(written(tmp_path, lines))
    assert trace.counts.tolist() == [second % 7 for second in range(700)]


def test_functions_are_added_up_and_minutes_keep_their_totals(tmp_path: Path) -> None:
    trace = load_trace(written(tmp_path, EXAMPLES["azure-functions"]))
    assert trace.seconds == 86_400
    minutes = trace.counts.reshape(1440, 60).sum(axis=1)
    assert minutes.tolist() == [1, 10, *[0] * 1437, 2]


def test_servegen_keeps_the_published_rates(tmp_path: Path) -> None:
    trace = load_trace(written(tmp_path, EXAMPLES["servegen"]))
    assert trace.seconds == 60
    assert [trace.counts[at : at + 20].sum() for at in (0, 20, 40)] == [10, 0, 5]


@pytest.mark.parametrize(
    ("pattern", "shape", "dispersion"),
    [
        ("Gamma", 0.25, 4.0),
        ("Weibull", 1.0, 1.0),
        ("Weibull", 0.5, 5.0),
    ],
)
def test_servegen_is_as_bursty_as_its_fit(
    pattern: str, shape: float, dispersion: float, tmp_path: Path
) -> None:
    """Counts of a renewal process have the gaps' squared variation as their dispersion."""
    lines = [f"{600 * n},200,1,{pattern},{shape},1" for n in range(10)]
    counts = load_trace(written(tmp_path, lines)).counts
    assert counts.sum() == 200 * 600 * 10
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.1)


def same(first: Trace, second: Trace) -> bool:
    return np.array_equal(first.counts, second.counts)
