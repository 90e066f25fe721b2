"""Frames are decoded however the stream is cut; invalid data is refused."""

from __future__ import annotations

import socket
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.io import child_process as frames
from migrator.io.child_process import (
    Channel,
    Frame,
    FrameError,
    FrameReader,
    decode_array,
    encode_array,
    encode_frame,
)
from migrator.serving.workers.messages import Assignment, Infer, Scores, Swap, ToWorker


def _fed(data: bytes, cuts: list[int]) -> list[Frame[ToWorker]]:
    reader: FrameReader[ToWorker] = FrameReader(ToWorker)
    frames: list[Frame[ToWorker]] = []
    edges = [0, *sorted(cuts), len(data)]
    for begin, end in pairwise(edges):
        piece = data[begin:end]
        while piece:
            space = reader.space()
            count = min(len(space), len(piece))
            space[:count] = piece[:count]
            frames += reader.add(count)
            piece = piece[count:]
    return frames


@given(st.lists(st.integers(0, 100_000), max_size=4), st.lists(st.integers(0, 400_000), max_size=6))
def test_frames_come_out_whole_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    sent = [Infer((size,), "|u1") for size in sizes]
    data = b"".join(
        piece
        for number, (message, payload) in enumerate(zip(sent, payloads, strict=True))
        for piece in encode_frame(number, message, payload)
    )
    frames = _fed(data, [min(cut, len(data)) for cut in cuts])
    assert [frame.number for frame in frames] == list(range(len(sent)))
    assert [frame.message for frame in frames] == sent
    assert [bytes(frame.payload) for frame in frames] == payloads


@given(st.binary(min_size=16, max_size=200))
def test_invalid_data_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match="invalid data"):
        _fed(data, [])


@pytest.mark.parametrize("header", [b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa4type\xa5Other"])
def test_a_header_of_another_kind_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError, match="invalid data"):
        _fed(frames._PREFIX.pack(b"MGR2", 1, len(header), 0) + header, [])


@pytest.mark.parametrize(
    "sizes", [(frames.MAX_HEADER_BYTES + 1, 0), (1, frames.MAX_PAYLOAD_BYTES + 1)]
)
def test_a_frame_that_announces_too_much_is_refused(
    sizes: tuple[int, int],
) -> None:
    with pytest.raises(FrameError):
        _fed(frames._PREFIX.pack(b"MGR2", 1, *sizes), [])


def test_too_large_a_tensor_is_not_sent() -> None:
    with pytest.raises(FrameError, match="smaller batches"):
        encode_frame(1, Scores((1,), 1, 0.0, 0.0), bytes(frames.MAX_PAYLOAD_BYTES + 1))


def test_a_channel_reads_what_was_written_and_reports_the_end() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        take = Assignment("a", "m", Path("w"), 2, "cpu", {"A": "b"}, 4, {1: 2.5})
        swap = Swap(Path("/x"), 3)
        with ours:
            writing: Channel[Scores] = Channel(ours, Scores)
            writing.send(1, take)
            writing.send(2, swap, b"xyz")
        reading: Channel[ToWorker] = Channel(theirs, ToWorker)
        first, second = reading.receive(), reading.receive()
        assert first is not None
        assert (first.number, first.message) == (1, take)
        assert second is not None
        assert (second.message, bytes(second.payload)) == (swap, b"xyz")
        assert reading.receive() is None


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "f2", "f4", ">f4", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3, 4)])
def test_arrays_come_back_as_they_were(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    sent_shape, sent_dtype, data = encode_array(array)
    back = decode_array(sent_shape, sent_dtype, memoryview(bytearray(data)))
    np.testing.assert_array_equal(back, array)
    assert back.shape == shape


def test_arrays_of_objects_are_not_sent_and_not_taken() -> None:
    with pytest.raises(TypeError):
        encode_array(np.array([object()]))
    for shape, dtype, size in [((1,), "|O", 8), ((2,), "<f4", 4), ((-1,), "<f4", 4), ((1,), "", 1)]:
        with pytest.raises(FrameError):
            decode_array(shape, dtype, memoryview(bytes(size)))
