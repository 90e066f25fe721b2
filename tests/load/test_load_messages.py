"""The client's side of the protocol: bytes out, answers in, whatever a server sends."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.errors import InputError
from migrator.io.http_client import address_of
from migrator.load.messages import (
    HEADER_LENGTH,
    LabelAnswer,
    ModelInput,
    encode_label,
    encode_request,
    error_in,
    read_answer,
    read_metadata,
)

PIXELS = ModelInput("pixels", "UINT8", (3, 4, 4))


def test_a_question_is_a_json_head_and_the_raw_sample() -> None:
    sample = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    body, headers = encode_request(PIXELS, sample, "r-1")
    length = int(headers[HEADER_LENGTH])
    head = json.loads(body[:length])
    assert head["id"] == "r-1"
    assert head["inputs"][0]["shape"] == [1, 3, 4, 4]
    assert head["inputs"][0]["parameters"]["binary_data_size"] == 48
    assert body[length:] == sample.tobytes()
    assert json.loads(encode_label("r-1", 3)) == {"id": "r-1", "label": 3}


def test_the_label_is_read_or_there_is_none() -> None:
    def answer(**output: object) -> bytes:
        return json.dumps({"model_version": "4", "outputs": [{"name": "label", **output}]}).encode()

    assert read_answer(answer(data=[2])) == LabelAnswer(2, "4")
    for body in (answer(data=[]), answer(data=["x"]), answer(), b'{"outputs": []}'):
        assert read_answer(body) is None


@given(st.binary(max_size=200))
def test_whatever_comes_back_is_an_answer_or_none(body: bytes) -> None:
    assert read_answer(body) is None
    assert "\n" not in error_in(body)


@pytest.mark.parametrize(
    ("sample", "fits"),
    [
        (np.zeros((3, 4, 4), np.uint8), True),
        (np.zeros((3, 5, 4), np.uint8), False),
        (np.zeros((3, 4), np.uint8), False),
        (np.zeros((3, 4, 4), np.int32), False),
    ],
)
def test_which_samples_a_model_takes(sample: np.ndarray, fits: bool) -> None:
    assert PIXELS.fits(sample) is fits
    assert ModelInput("x", "UINT8", (3, -1, -1)).fits(sample) is (
        sample.ndim == 3 and sample.dtype == np.uint8
    )


def test_metadata_of_something_else() -> None:
    model_input = read_metadata(
        "a", b'{"inputs": [{"name": "x", "datatype": "INT32", "shape": [-1, 128]}]}'
    )
    assert model_input == ModelInput("x", "INT32", (128,))
    for body in (b"", b"<html>", b'{"inputs": []}', b"[]"):
        with pytest.raises(InputError, match="Open Inference Protocol"):
            read_metadata("a", body)


def test_addresses() -> None:
    address = address_of("http://[::1]:8600/behind/")
    assert (address.host, address.port, address.path, address.secure) == (
        "::1",
        8600,
        "/behind",
        False,
    )
    assert address.authority == "[::1]:8600"
    assert (address_of("https://some.where").port, address_of("https://some.where").secure) == (
        443,
        True,
    )
