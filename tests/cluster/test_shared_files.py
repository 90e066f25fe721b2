"""Shared files are complete, however many processes write them at once."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from migrator.cluster import shared_files
from migrator.cluster.shared_files import SharedFiles, StoreHangsError

pytest.importorskip("fsspec", reason="pip install 'migrator-gpu[cluster]'")


def test_several_threads_write_one_file_whole(tmp_path: Path) -> None:
    files = SharedFiles(str(tmp_path), "g1-1")
    written: list[bytes] = []

    def write(content: bytes) -> None:
        for _ in range(60):
            files.write("map.json", content)
            written.append(content)

    threads = [Thread(target=partial(write, letter * 5000)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 180
    assert files.read("map.json") in written
    assert [path.name for path in tmp_path.iterdir()] == ["map.json"]


def test_only_what_earlier_lives_could_not_finish_is_cleared(tmp_path: Path) -> None:
    begun: list[Path] = []
    for writer in ("g1-1", "g1-2", "g2-1"):
        SharedFiles(str(tmp_path), writer)._whole("map.json", partial(noted, begun))
    for path in begun:
        path.touch()
    SharedFiles(str(tmp_path), "g1-2").clear_unfinished(".")
    assert [path.exists() for path in begun] == [False, True, True]


def noted(begun: list[Path], unfinished: Path) -> None:
    begun.append(unfinished)
    unfinished.touch()


def test_a_store_that_hangs_is_waited_for_no_longer_than_its_limit_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "READ_S", 0.2)
    monkeypatch.setattr(shared_files, "AGAIN_S", 0.0)
    files = SharedFiles(str(tmp_path), "w-1")
    os.mkfifo(tmp_path / "hangs")
    (tmp_path / "there").write_bytes(b"content")
    for _ in range(shared_files.MOST_HANGING):
        with pytest.raises(StoreHangsError, match=str(tmp_path)):
            files.read("hangs")
    with pytest.raises(StoreHangsError):
        files.read("there")  # it is not asked again before a call returns
    with os.fdopen(os.open(tmp_path / "hangs", os.O_RDWR | os.O_NONBLOCK), "wb"):
        pass
    content = None
    while content is None:
        with suppress(StoreHangsError):
            content = files.read("there")
    assert content == b"content"
    assert files.read("not there") is None
