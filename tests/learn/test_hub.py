"""Models of the hub, downloaded from a server on this machine: pinned, and clear when offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.hub_server import Hub, serve_hub

from migrator.core.errors import InputError
from migrator.learn.registry import model_class

ASK = """
import sys
from migrator.core.errors import InputError
from migrator.learn.hub import model_folder
for each in sys.argv[1:]:
    try:
        found = model_folder(each, "hf:FOLDER")
        print(found.words, *sorted(file.name for file in found.path.iterdir()))
    except InputError as error:
        print(error)
"""


def ask(url: str, home: Path, *names: str) -> list[str]:
    """What a new process finds for each name."""
    places = {"HF_ENDPOINT": url, "HF_HOME": str(home / "hf"), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *names],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **places},
        cwd=home,
    )
    return done.stdout.splitlines()


def test_a_name_without_a_revision_stays_at_the_commit_it_was_first_resolved_to(
    tmp_path: Path,
) -> None:
    hub = Hub()
    files = {
        "config.json": b"{}",
        "model.safetensors": b"1",
        "model.py": b"2",
        "pytorch_model.bin": b"3",
        "onnx/config.json": b"{}",
    }
    first = hub.push("me/vit", files)
    pinned = f"me/vit of the hub, commit {first} config.json model.safetensors"
    with serve_hub(hub):
        assert ask(hub.url, tmp_path, "me/vit") == [pinned]
        second = hub.push("me/vit", files)
        same, newer, revision, name = ask(
            hub.url, tmp_path, "me/vit", f"me/vit@{second}", "me/vit@no", "me/bert"
        )
    assert same == pinned
    assert newer.startswith(f"me/vit of the hub, commit {second} ")
    assert revision.startswith("model: me/vit has no revision 'no' on the hub; give a branch")
    assert name.startswith("model: the hub has no me/bert, or it is private; check the name")
    assert ask(hub.url, tmp_path, "me/vit", f"me/vit@{second}") == [pinned, newer]


def test_without_a_network_one_sentence_says_what_to_download(tmp_path: Path) -> None:
    began_s = time.monotonic()
    (said,) = ask("http://127.0.0.1:1", tmp_path, "me/vit@v1")
    assert said.startswith("model: me/vit is neither a folder nor downloaded, and the hub cannot")
    assert said.endswith(
        "run `hf download me/vit --revision v1 --local-dir FOLDER` where there is a network, copy "
        "FOLDER here and write hf:FOLDER"
    )
    assert time.monotonic() - began_s < 60


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("~no-such-user/vit", "there is no folder '~no-such-user/vit'"),
        ("a" * 300, "there is no folder 'aaa"),
        ("a/" * 3000, "there is no folder 'a/a"),
        ("me/..", "me/.. is neither a folder nor an id of the hub"),
        ("me/vit@one\0two", "unprintable"),
    ],
)
def test_what_cannot_be_a_folder_or_an_id_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        model_class(f"hf:{name}")


def test_a_damaged_pin_is_replaced(tmp_path: Path) -> None:
    hub = Hub()
    commit = hub.push("me/vit", {"config.json": b"{}", "model.safetensors": b"1"})
    pin = tmp_path / "migrator" / "hub" / "me--vit@main"
    pin.parent.mkdir(parents=True)
    pin.write_bytes(b"\xff half a com")
    with serve_hub(hub):
        (found,) = ask(hub.url, tmp_path, "me/vit")
    assert found.startswith(f"me/vit of the hub, commit {commit}")
    assert pin.read_text() == commit
