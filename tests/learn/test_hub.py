"""Models of the hub, downloaded from a server on this machine: pinned, and clear when offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.hub_server import Hub, serve_hub

from migrator.core.errors import InputError
from migrator.learn.registry import model_class

ASK = """
import sys
from migrator.core.errors import InputError
from migrator.learn.model_folder import model_folder
for name in sys.argv[1:]:
    try:
        folder = model_folder(name, "hf:FOLDER")
        print(folder.origin, *sorted(file.name for file in folder.path.iterdir()))
    except InputError as error:
        print(error)
assert "torch" not in sys.modules, "it takes seconds to import"
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
    """Unless the file that says so is damaged; without a network one sentence says what to do."""
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
    damaged = tmp_path / "migrator" / "hub" / "me--worn@main"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"\xff half a com")
    worn = hub.push("me/worn", files)
    with serve_hub(hub):
        origin, repaired = ask(hub.url, tmp_path, "me/vit", "me/worn")
        assert origin == pinned
        assert repaired.startswith(f"me/worn of the hub, commit {worn}")
        assert damaged.read_text() == worn
        second = hub.push("me/vit", files)
        same, newer, revision, name = ask(
            hub.url, tmp_path, "me/vit", f"me/vit@{second}", "me/vit@no", "me/bert"
        )
    assert same == pinned
    assert newer.startswith(f"me/vit of the hub, commit {second} ")
    assert revision.startswith("model: me/vit has no revision 'no' on the hub; give a branch")
    assert name.startswith("model: the hub has no me/bert, or it is private; check the name")
    # without a network from here on
    *kept, said = ask(hub.url, tmp_path, "me/vit", f"me/vit@{second}", "me/vit@v1")
    assert kept == [pinned, newer]
    assert said.startswith("model: me/vit is neither a folder nor downloaded, and the hub cannot")
    assert said.endswith(
        "run `hf download me/vit --revision v1 --local-dir FOLDER` where there is a network, copy "
        "FOLDER here and write hf:FOLDER"
    )


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
