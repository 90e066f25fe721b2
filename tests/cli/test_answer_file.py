"""Where figures go: seen before the work, links followed, pipes and devices written to."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from migrator.cli import app
from migrator.core.errors import InputError
from migrator.io.output_file import AnswerFile


def test_a_file_is_replaced_whole_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    AnswerFile(tmp_path / "link.json").write({"a": 1})
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == {"a": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    AnswerFile(pipe).write({"a": 1})
    reader.join()
    assert json.loads(read[0]) == {"a": 1}
    assert pipe.is_fifo()


def test_a_pipe_that_has_no_name_is_written_to(tmp_path: Path) -> None:
    """As /dev/stdout is one where a program reads along."""
    reading, writing = os.pipe()
    (tmp_path / "out").symlink_to(f"/proc/self/fd/{writing}")
    AnswerFile(tmp_path / "out").write({"a": 1})
    os.close(writing)
    with os.fdopen(reading) as read:
        assert json.load(read) == {"a": 1}


@pytest.mark.parametrize("place", [".", "absent/found.json", "file/found.json", "loop"])
def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="cannot be written; name a file in an existing directory"):
        AnswerFile(tmp_path / place)


def test_a_folder_without_room_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="cannot be written"):
        AnswerFile(tmp_path / "found.json")


def test_an_answer_that_cannot_be_written_after_all_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: AnswerFile, _answer: object) -> None:
        raise InputError("--out: full")

    monkeypatch.setattr(AnswerFile, "write", full)
    options = ["--model", "support.tiny_model:Tiny", "--epochs", "1", "--samples", "20"]
    out = ["--windows", "0", "--out", str(tmp_path / "found.json")]
    done = CliRunner().invoke(app, ["retrain", "nc-synthetic", *options, *out])
    assert isinstance(done.exception, InputError)
    assert json.loads(done.stdout)["benchmark"] == "nc-synthetic"
