"""What is wrong with a trace file is one sentence that begins with its path; never a traceback."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.errors import InputError
from migrator.core.scenario import Trace
from migrator.workload.traces.formats import load_trace

LLM = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FUNCTIONS = "HashOwner,HashApp,HashFunction,Trigger,1,2\n"
V2017 = "9,20,1,1,1,Terminated,50,0.005\n"
V2018 = "M1,1,j_1,1,Terminated,9,20,100,0.2\n"
CHUNK = "0,1,1,Gamma,1,1\n"


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_trace(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("second,count\n", "no requests at all"),
        ("timestamp\n7,1\n", "no known trace format"),
        ("second,count\n0,1\n1,-2\n", "line 3 is '1,-2', not a whole second and a whole count"),
        ("0,1\n1,nan\n", "line 2 is '1,nan'"),
        ("0,1\n\n\n1\n", "line 4 is '1'"),
        ("0,99999999999\n", "line 1 is '0,99999999999'"),
        ("0,1\n1" + "0" * 400 + ",1\n", "line 2 is '1000"),
        ("0,1\n10000000,1\n", "it spans 10,000,001 seconds"),
        ("1700000000000\n1700000020000\n", "line 1 is '1700000000000', not a time in seconds"),
        ("1\n2\nlater\n", "line 3 is 'later', not a time"),
        ("2023-11-16T18:15:46\n2023-13-16T18:15:46\n", "line 2 is '2023-13-16T18:15:46'"),
        ("2023-11-16T18:15:46\n2023-11-16T18:15:46Z\n", "line 2 is '2023-11-16T18:15:46Z'"),
        (
            LLM + "2023-11-16 18:15:46.68,374\n",
            "line 2 is '2023-11-16 18:15:46.68,374', not a time",
        ),
        (FUNCTIONS + "a,b,c,http,0,0\n", "no requests at all"),
        (FUNCTIONS + "a,b,c,http,1\n", "line 2 is 'a,b,c,http,1', not 4 texts and 2 whole"),
        (FUNCTIONS + "a,b,c,http,1,-2\n", "line 2 is 'a,b,c,http,1,-2'"),
        (V2017.replace("9", "0", 1), "no requests at all"),
        (V2017 + "x" + V2017, "line 2 is 'x9,20,1,1,1,Terminated,50,0.005', not 8 columns"),
        (CHUNK + "600,-1,1,Gamma,1,1\n", "line 2 is '600,-1,1,Gamma,1,1', not time,rate,cv"),
        (CHUNK + CHUNK, "the time 0 is in two rows"),
        (CHUNK + "600,1e9,1,Gamma,1,1\n", "the rate 1e+09 at time 600 makes more than"),
        (CHUNK + "6000000,1,1,Gamma,1,1\n", "it spans 12,000,000 seconds"),
        ('{"version": 1}\n', "line 1 is '{\"version\": 1}', which is the beginning of no known"),
        ("0,1\n\0,\0\n", "this is not text"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_faulty_text(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    message = refused(path)
    assert reason in message
    assert len(message) < 250


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "this is a picture, not a trace"),
        (b"\xff\xfe0\0,\x001\0\n\0", "this is not text"),
        (b"0,1\n1,\xe9\n", "this is not text"),
        (gzip.compress(b"0,1\n" * 5000, mtime=0)[:-12], "the gzip file is damaged"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0" + b"\xff" * 20, "the gzip file is damaged"),
        (gzip.compress(b"0,1\n1,x\n", mtime=0), "line 2 is '1,x'"),
    ],
)
def test_faulty_bytes(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(content)
    assert reason in refused(path)


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    assert "there is no such file" in refused(tmp_path / "none.csv")
    assert "this is a folder" in refused(tmp_path)


def test_the_line_is_named_in_a_later_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.workload.traces.reading._BLOCK_CHARS", 64)
    lines = [f"{second},1" for second in range(200)]
    lines[123] = "123;1"
    path = tmp_path / "large.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert "line 124 is '123;1'" in refused(path)


CELLS = st.sampled_from(
    ["0", "7", "-1", "nan", "1e400", "", " ", "x", "Gamma", "Terminated", "2023-11-16", '"', "#"]
)
LINES = st.lists(CELLS, min_size=1, max_size=9).map(",".join)
BEGINNINGS = st.sampled_from([LLM, FUNCTIONS, V2017, V2018, CHUNK, "second,count\n", "1\n", ""])
TEXTS = st.builds(lambda first, lines: first + "\n".join(lines), BEGINNINGS, st.lists(LINES))


@given(content=st.one_of(st.binary(max_size=200), TEXTS.map(str.encode)))
def test_whatever_the_file_holds(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    outcome = loaded_or_message(path)
    if isinstance(outcome, str):
        assert outcome.startswith(f"{path}: ")
        assert "\n" not in outcome
    else:
        assert outcome.counts.sum() > 0
        assert outcome.counts.min() >= 0


def loaded_or_message(path: Path) -> Trace | str:
    try:
        return load_trace(path)
    except InputError as error:
        return str(error)
