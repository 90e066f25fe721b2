"""Files for everybody: whole, whoever writes them and however many do at once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from migrator.runtime.shared_files import SharedFiles

pytest.importorskip("fsspec", reason="pip install 'migrator[cluster]'")


def test_several_threads_write_one_file_whole(tmp_path: Path) -> None:
    files = SharedFiles(str(tmp_path), "g1-1")
    written: list[bytes] = []

    def write(content: bytes) -> None:
        for _ in range(60):
            files.write("map.json", content)
            written.append(content)

    threads = [Thread(target=partial(write, each * 5000)) for each in (b"a", b"b", b"c")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(written) == 180
    assert files.read("map.json") in written
    assert [each.name for each in tmp_path.iterdir()] == ["map.json"]


def test_only_what_earlier_lives_could_not_finish_is_cleared(tmp_path: Path) -> None:
    begun: list[Path] = []
    for each in ("g1-1", "g1-2", "g2-1"):
        SharedFiles(str(tmp_path), each)._whole("map.json", partial(noted, begun))
    for path in begun:
        path.touch()
    SharedFiles(str(tmp_path), "g1-2").clear_unfinished(".")
    assert [each.exists() for each in begun] == [False, True, True]


def noted(begun: list[Path], unfinished: Path) -> None:
    begun.append(unfinished)
    unfinished.touch()
