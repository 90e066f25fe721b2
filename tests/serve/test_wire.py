"""Frames: whatever goes in comes out, however it is cut; garbage is refused in one sentence."""

from __future__ import annotations

import socket
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.serve import wire
from migrator.serve.assignment import Assignment
from migrator.serve.messages import Infer, Release, Scores, Swap, Take, ToWorker
from migrator.serve.wire import Frame, Frames, Line, WireError, flat, parts, shaped, unpacked


def _fed(data: bytes, cuts: list[int]) -> list[Frame[ToWorker]]:
    frames: Frames[ToWorker] = Frames(ToWorker)
    found: list[Frame[ToWorker]] = []
    edges = [0, *sorted(cuts), len(data)]
    for begin, end in pairwise(edges):
        piece = data[begin:end]
        while piece:
            space = frames.space()
            count = min(len(space), len(piece))
            space[:count] = piece[:count]
            found += frames.add(count)
            piece = piece[count:]
    return found


@given(st.lists(st.integers(0, 100_000), max_size=4), st.lists(st.integers(0, 400_000), max_size=6))
def test_frames_come_out_whole_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    sent = [Infer(number, (size,), "|u1") for number, size in enumerate(sizes)]
    data = b"".join(
        piece
        for message, payload in zip(sent, payloads, strict=True)
        for piece in parts(message, payload)
    )
    found = _fed(data, [min(each, len(data)) for each in cuts])
    assert [each.message for each in found] == sent
    assert [bytes(each.payload) for each in found] == payloads


def test_a_frame_keeps_its_bytes_when_the_next_one_comes() -> None:
    frames: Frames[ToWorker] = Frames(ToWorker)
    kept = []
    for value in (1, 2):
        data = parts(Infer(value, (3,), "|u1"), bytes([value] * 3))[0]
        frames.space()[: len(data)] = data
        kept += frames.add(len(data))
    assert [bytes(each.payload) for each in kept] == [b"\1\1\1", b"\2\2\2"]


@given(st.binary(min_size=12, max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="garbage"):
        _fed(data, [])


@pytest.mark.parametrize("header", [b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa4type\xa5Other"])
def test_a_header_of_another_kind_is_refused(header: bytes) -> None:
    with pytest.raises(WireError, match="garbage"):
        _fed(wire._PREFIX.pack(b"MGR1", len(header), 0) + header, [])
    with pytest.raises(WireError, match="garbage"):
        unpacked(ToWorker, header)


@pytest.mark.parametrize("sizes", [(wire.LARGEST_HEADER + 1, 0), (1, wire.LARGEST_PAYLOAD + 1)])
def test_who_announces_too_much_is_refused_before_anything_is_kept(sizes: tuple[int, int]) -> None:
    with pytest.raises(WireError):
        _fed(wire._PREFIX.pack(b"MGR1", *sizes), [])


def test_too_large_a_tensor_is_not_sent() -> None:
    with pytest.raises(WireError, match="smaller batches"):
        wire.encoded(Release(), wire.LARGEST_PAYLOAD + 1)


def test_a_blocking_line_reads_what_was_written_and_tells_the_end() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        asked = Take(1, Assignment("a", "m", Path("w"), 2, "cpu", {"A": "b"}, 4, {1: 2.5}))
        swap = Swap(2, Path("/x"), 3)
        with ours:
            writing: Line[Scores] = Line(ours, Scores)
            writing.send(asked)
            writing.send(swap, b"xyz")
        reading: Line[ToWorker] = Line(theirs, ToWorker)
        first, second = reading.receive(), reading.receive()
        assert first is not None
        assert first.message == asked
        assert second is not None
        assert (second.message, bytes(second.payload)) == (swap, b"xyz")
        assert reading.receive() is None


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "f2", "f4", ">f4", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3, 4)])
def test_arrays_come_back_as_they_were(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    told_shape, told, data = flat(array)
    back = shaped(told_shape, told, memoryview(bytearray(data)))
    np.testing.assert_array_equal(back, array)
    assert back.shape == shape


def test_slices_of_arrays_come_back_too() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[::2, ::3]
    np.testing.assert_array_equal(shaped(*flat(array)), array)


def test_arrays_of_objects_are_not_sent_and_not_taken() -> None:
    with pytest.raises(TypeError):
        flat(np.array([object()]))
    for shape, dtype, size in [((1,), "|O", 8), ((2,), "<f4", 4), ((-1,), "<f4", 4), ((1,), "", 1)]:
        with pytest.raises(WireError):
            shaped(shape, dtype, memoryview(bytes(size)))
