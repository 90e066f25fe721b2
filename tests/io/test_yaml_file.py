"""YAML read strictly: what is taken for what, and what is refused with which sentence."""

from __future__ import annotations

import json
import math
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.core.errors import InputError
from migrator.io import yaml_text
from migrator.io.data_file import beside, read_yaml_file
from migrator.io.file_kind import SCENARIO, recognise
from migrator.io.yaml_text import MAX_VALUES, load_yaml
from migrator.workload.traces.formats import load_trace


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        load_yaml(text)
    return one_line(caught.value)


def one_line(error: InputError) -> str:
    sentence = str(error)
    assert sentence.isprintable()
    assert ";" in sentence, "what is wrong; the remedy"
    return sentence


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1", 1),
        ("-2", -2),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
        # YAML 1.1 makes something else of these
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("2026-11-15", "2026-11-15"),
    ],
)
def test_plain_words_follow_yaml_1_2(word: str, value: object) -> None:
    values = load_yaml(f"[{word}, 0]" if word else "[~, 0]")
    assert values == [value, 0]
    assert isinstance(values, list)
    assert type(values[0]) is type(value)


def test_numbers_that_are_not_finite_stay_numbers() -> None:
    values = load_yaml("[.inf, -.inf, .nan]")
    assert isinstance(values, list)
    assert values[:2] == [math.inf, -math.inf]
    assert math.isnan(values[2])
    assert load_yaml("9" * 5000) == math.inf


def test_a_size_is_a_key_without_quotes() -> None:
    assert load_yaml("{1: 150, '2': 80}") == {"1": 150, "2": 80}


def test_aliases_and_merges_are_written_out() -> None:
    text = """
        base: &base {slo_ms: 100, batch: 1}
        one: {<<: *base, batch: 4}
        two: {<<: [{batch: 9}, *base]}
        list: [*base, *base]
    """
    base = {"slo_ms": 100, "batch": 1}
    assert load_yaml(text) == {
        "base": base,
        "one": {"slo_ms": 100, "batch": 4},
        "two": {"slo_ms": 100, "batch": 9},
        "list": [base, base],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t: [{}, {c: {7: 1, '7': 1}}]", "t[1].c.7: the key appears more than once"),
        ("a: {<<: 3}", "a['<<']: 3 is not an object"),
        ("a: [1,", "line 1 column 7"),
        ("a: 1\n  b: 2", "line 2 column 4"),
        ("a:\n\t- 1", "line 2 column 1"),
        ("a: *b", "undefined alias 'b'"),
        ("a: 'x\n\n\ny", "line 4 column 2"),
        ("a: \x00", "character 4"),
        ("a: &a [*a]", "a[0]: the alias stands for what contains it"),
        ("a: [!thing 3]", "a[0]: the tag '!thing'"),
        ("a: !!python/object/apply:os.getcwd []", "a: the tag 'python/object/apply:os.getcwd'"),
        ("a: !!int abc", "a: the tag 'int'"),
        ("? [1]\n: 2", "a list or an object is no key"),
        ("a: {true: 1}", "a: the key 'true' is not text"),
        ("[" * 2_000, "nested too deeply"),
    ],
)
def test_refused_with_its_place(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_few_aliases_cannot_stand_for_billions_of_values() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert f"more than {MAX_VALUES} values" in refusal("\n".join(lines))


def test_a_file_of_too_many_values_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MAX_VALUES", 100)
    assert "more than 100 values" in refusal("- 1\n" * 300 + "- [")


def test_a_large_file_of_another_kind_is_recognised_without_reading_it_as_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_text, "MAX_CHARACTERS", 100)
    monkeypatch.setattr("yaml.compose", None)
    assert "more than 100 characters" in refusal("second,requests\n" * 20)
    path = tmp_path / "trace.csv"
    path.write_text("second,requests\n" * 20, encoding="utf-8")
    with pytest.raises(InputError, match="this is a trace of requests, not a scenario"):
        read_yaml_file(path, lambda data: data, SCENARIO)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty; give a YAML object"),
        (b"\xff", "byte 0 is not UTF-8; save the file as YAML"),
        (b"a: [", "malformed YAML at line 1 column 5"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"scenario\.yaml: ") as caught:
        read_yaml_file(path, lambda data: data)
    assert said in str(caught.value)


def test_a_file_whose_reading_would_never_end_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "scenario.yaml"
    os.mkfifo(fifo)
    for read in (partial(read_yaml_file, parse=lambda data: data), load_trace):
        with pytest.raises(InputError, match=r"scenario\.yaml: this is a FIFO, socket or device"):
            read(fifo)
    for path in ("scenario.yaml", "/dev/zero"):
        with pytest.raises(InputError, match=r"arrivals\.trace: .* name a regular file"):
            beside(tmp_path, path, ("arrivals", "trace"))
    assert recognise(fifo) is None


TEXT = st.text(st.characters(max_codepoint=0xD7FF, exclude_characters="\x7f"), max_size=5)
KEYS = TEXT.filter(lambda key: key != "<<")  # merges another object
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(JSON)
def test_json_is_yaml(value: object) -> None:
    assert load_yaml(json.dumps(value)) == value


@settings(deadline=None)
@given(st.text(st.sampled_from("ab:- \n{}[],&*!#'\"<>|?%@\t1.~"), max_size=30))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        load_yaml(text)
    except InputError as error:
        one_line(error)
