"""`migrator gpu` on an emulated GPU: what its verbs print, change, refuse, and exit with."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gpu_cli import Answer, gpu
from support.waiting import until

from migrator.cli.gpu_verbs import room, slices
from migrator.core.catalogue import Board, Place, board, boards
from migrator.gpu.drivers.base import GpuInstance
from migrator.gpu.drivers.virtual_board import EmulatedDriver, VirtualBoard, register_use
from migrator.gpu.layout_file import layout_to_yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "layouts"
BOTH = EXAMPLES / "serve-and-retrain.yaml"
APPLY = [sys.executable, "-m", "migrator", "gpu", "apply", "--driver", "emulated"]
OK, REFUSED = 0, 3
CREATE_4G = {"op": "create", "start": 0, "gpcs": 4, "profile": "4g.20gb"}
CREATE_3G = {"op": "create", "start": 4, "gpcs": 3, "profile": "3g.20gb"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, and instances that come and go at once."""
    folder = tmp_path / "state"
    monkeypatch.setenv("MIGRATOR_STATE", str(folder))
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")
    monkeypatch.setenv("COLUMNS", "200")
    return folder


def emulated(*arguments: str | Path) -> Answer:
    return gpu(*arguments, "--driver", "emulated")


def written(folder: Path, *places: Place) -> Path:
    """A layout file with these instances."""
    path = folder / f"layout-{len(list(folder.iterdir()))}.yaml"
    path.write_text(layout_to_yaml(EmulatedDriver(folder / "any").gpu().board, places), "utf-8")
    return path


@contextmanager
def held(state: Path, start: int) -> Iterator[str]:
    """This process uses the instance at `start`; yields what refusals call it."""
    driver = EmulatedDriver(state)
    (instance,) = [instance for instance in driver.instances() if instance.place.start == start]
    with register_use(driver.environment(instance)):
        yield f"(process {os.getpid()})"


# apply, and what it prints.


def test_dry_run_as_json_is_the_steps_and_changes_nothing() -> None:
    for _ in range(2):
        done = emulated("apply", BOTH, "--dry-run", "--json")
        assert done.code == OK
        assert done.out == json.dumps({"steps": [CREATE_4G, CREATE_3G]}) + "\n"
        assert done.err == ""


def test_apply_prints_the_steps_it_took(tmp_path: Path) -> None:
    assert emulated("apply", BOTH, "--json").json == {"steps": [CREATE_4G, CREATE_3G]}
    assert emulated("apply", BOTH, "--json").json == {"steps": []}
    assert emulated("apply", BOTH).out == f"GPU 0 is as {BOTH} says already\n"
    other = written(tmp_path, Place(0, "4g.20gb"), Place(6, "1g.5gb"))
    assert emulated("apply", other).out == "destroy 3g.20gb at 4\ncreate 1g.5gb at 6\n"


def test_what_is_in_use_and_in_the_way_is_named_and_stays(state: Path) -> None:
    emulated("apply", BOTH)
    with held(state, 4) as user:
        done = emulated("apply", EXAMPLES / "small-services.yaml")
        assert done.code == REFUSED
        assert "3g.20gb at 4" in done.refusal
        assert user in done.refusal
        assert emulated("assert", BOTH).code == OK


def test_what_is_of_another_owner_is_left_to_its_owner(tmp_path: Path) -> None:
    emulated("apply", written(tmp_path, Place(4, "3g.20gb")), "--owner", "night-shift")
    seven = written(tmp_path, Place(0, "7g.40gb"))
    done = emulated("apply", seven)
    assert done.code == REFUSED
    assert "night-shift" in done.refusal
    cleared = emulated("clear")
    assert cleared.out == "nothing of migrator's to destroy\n"
    assert "migrator gpu clear --owner night-shift" in cleared.err
    assert emulated("clear", "--owner", "night-shift").out == "destroy 3g.20gb at 4\n"
    assert emulated("apply", seven).code == OK


def test_a_printed_command_acts_on_the_gpu_and_state_folder_that_were_meant(
    tmp_path: Path,
) -> None:
    meant = ("--driver", "emulated", "--gpu", "1", "--state", tmp_path / "another one")
    gpu("apply", written(tmp_path, Place(4, "3g.20gb")), "--owner", "night-shift", *meant)
    refused = gpu("apply", written(tmp_path, Place(0, "7g.40gb")), *meant)
    _, command, _ = refused.refusal.split("`")
    assert gpu(*shlex.split(command)[2:]).out == "destroy 3g.20gb at 4\n"


# clear.


def test_clear_says_first_what_it_would_do_and_then_what_it_left(state: Path) -> None:
    emulated("apply", BOTH)
    destroy = {"op": "destroy", "start": 4, "gpcs": 3, "profile": "3g.20gb"}
    with held(state, 0) as user:
        for options in (["--dry-run"], []):
            done = emulated("clear", *options, "--json")
            assert done.json == {"steps": [destroy]}
            assert done.err.startswith("note: 4g.20gb at 0 is left: in use by ")
            assert user in done.err
    assert emulated("clear").out == "destroy 4g.20gb at 0\n"
    assert emulated("export", "--json").json["instances"] == []


# Looking.


def test_list_and_show(state: Path) -> None:
    emulated("apply", BOTH)
    assert emulated("list").out.splitlines() == [
        "driver emulated",
        "GPU  board      MIG mode  instances",
        "0    A100-40GB  on        4g.20gb@0 3g.20gb@4",
    ]
    with held(state, 4) as user:
        text = emulated("show").out
    lines = text.splitlines()
    assert lines[3].split() == ["slice", *map(str, range(8))]
    assert lines[4].strip() == "[       4g.20gb        ][       3g.20gb        ]"
    assert lines[6].split() == ["at", "profile", "owner", "used", "by", "uuid"]
    assert "4   3g.20gb  migrator" in text
    assert user in text
    fits = {line.split()[0]: line.split()[-1] for line in lines if "nowhere" in line}
    assert len(fits) == 7


def test_show_as_json_has_owners_and_what_still_fits(tmp_path: Path) -> None:
    emulated("apply", written(tmp_path, Place(4, "3g.20gb")))
    shown = emulated("show", "--json").json
    (instance,) = shown["instances"]
    assert (instance["start"], instance["gpcs"], instance["profile"]) == (4, 3, "3g.20gb")
    assert (instance["owner"], instance["holders"]) == ("migrator", [])
    assert instance["uuid"].startswith("MIG-")
    fits = {profile["profile"]: profile["fits_at"] for profile in shown["profiles"]}
    assert fits["1g.5gb"] == [0, 1, 2, 3]
    assert fits["2g.10gb"] == [0, 2]
    assert fits["3g.20gb"] == [0]
    assert fits["4g.20gb"] == [0]
    assert fits["7g.40gb"] == []
    assert shown["unfinished"] == []


def test_export_can_be_asserted_and_applied_again(tmp_path: Path) -> None:
    emulated("apply", EXAMPLES / "small-services.yaml")
    for name, options in (("layout.yaml", []), ("layout.json", ["--json"])):
        path = tmp_path / name
        path.write_text(emulated("export", *options).out, "utf-8")
        assert emulated("assert", path).code == OK
        assert emulated("apply", path, "--json").json == {"steps": []}


def test_assert_prints_the_differences(tmp_path: Path) -> None:
    emulated("apply", written(tmp_path, Place(0, "4g.20gb"), Place(4, "1g.5gb")))
    done = emulated("assert", BOTH)
    assert done.code == REFUSED
    assert done.out == "missing: 3g.20gb at 4\nnot in the layout: 1g.5gb at 4\n"
    done_json = emulated("assert", BOTH, "--json")
    assert done_json.code == REFUSED
    assert done_json.json == {"as_wanted": False, "differences": done.out.splitlines()}
    assert emulated("assert", EXAMPLES / "small-services.yaml").out == (
        "missing: 2g.10gb at 0\nmissing: 2 of 1g.5gb, anywhere\nnot in the layout: 4g.20gb at 0\n"
    )


def test_doctor_finds_nothing_on_a_sound_gpu_and_a_half_made_instance(state: Path) -> None:
    emulated("apply", BOTH)
    sound = emulated("doctor")
    assert sound.code == OK
    assert {line.split()[0] for line in sound.out.splitlines()} == {"ok"}
    emulated("clear")
    path, uuid = state / "emulated" / "gpu-0.json", EmulatedDriver(state).gpu().uuid
    VirtualBoard(path, board("A100-40GB"), uuid).create_gpu_instance(Place(4, "3g.20gb"))
    ill = emulated("doctor", "--json")
    assert ill.code == REFUSED
    (problem,) = [check for check in ill.json["checks"] if check["verdict"] == "problem"]
    assert problem["name"] == "half-made"
    assert "3g.20gb at 4 has no compute instance" in problem["words"]
    assert problem["run"] is None, "nvidia-smi does not know emulated GPUs"
    assert "(half-made)" in emulated("list").out
    assert "is left out" in emulated("export").err


# Where things are missing.


def test_without_a_gpu_the_emulated_one_is_used_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from migrator.gpu.drivers import registry as survey

    monkeypatch.setattr(survey, "gpu_count", lambda: 0)
    done = gpu("list", "--json")
    assert done.json["driver"] == "emulated"
    assert done.err.startswith("note: no GPU found, using the emulated one")
    assert gpu("list", "--json", "--board", "A30-24GB").err == ""


def test_without_a_state_folder_or_a_known_board_verbs_say_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for verb in (["list"], ["show"], ["export"], ["apply", BOTH], ["clear"]):
        said = emulated(*verb, "--state", file).bad_input
        assert "the state folder cannot be made" in said
    done = emulated("doctor", "--state", file, "--json")
    assert done.code == REFUSED
    assert done.json["checks"][0]["verdict"] == "problem"
    unknown = emulated("list", "--gpu", "0", "--board", "B100").bad_input
    assert unknown.endswith("(`migrator boards` lists all)")


def test_a_gpu_that_cannot_be_asked_has_its_error_in_its_line(state: Path, tmp_path: Path) -> None:
    emulated("apply", written(tmp_path, Place(4, "3g.20gb")), "--gpu", "2")
    (state / "emulated" / "gpu-2.json").write_text("{")
    done = emulated("list", "--json")
    assert done.code == REFUSED
    good, bad = done.json["gpus"]
    assert (good["index"], "error" in good) == (0, False)
    assert bad["index"] == 2
    assert "is damaged and cannot be read" in bad["error"]
    assert emulated("list").code == REFUSED
    assert emulated("list", "--gpu", "0").code == OK
    assert "is damaged" in emulated("list", "--gpu", "2").refusal


@pytest.mark.parametrize(
    "arguments", [["list"], ["show"], ["export"], ["doctor"], ["clear", "--dry-run"]]
)
def test_looking_makes_no_gpu_and_fixes_no_board(state: Path, arguments: list[str]) -> None:
    assert emulated(*arguments, "--board", "A30-24GB").code == OK
    assert emulated("apply", BOTH, "--dry-run").code == OK
    assert list(state.iterdir()) == []
    assert emulated("apply", BOTH).code == OK


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "--gpu", "-1"], "--gpu: -1 is not a GPU's number"),
        (["show", "--board", "A100"], "unknown board 'A100'; use "),
        (["apply", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
        (["apply", "nowhere.yaml:name"], "nowhere.yaml: there is no such file"),
        (["apply", EXAMPLES], "this is a directory"),
        (["apply", EXAMPLES / "mig-parted.yaml"], "name one as FILE:NAME"),
        (["apply", f"{EXAMPLES}/mig-parted.yaml:by-gup"], "did you mean by-gpu?"),
        (["apply", BOTH, "--owner", " "], "--owner: the name is empty"),
        (["apply", BOTH, "--enable-mig"], "--enable-mig: emulated has no MIG mode"),
        (["apply", BOTH, "--board", "H200-141GB"], "for A100-40GB, but GPU 0 is H200-141GB"),
        (["assert", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_happens(
    arguments: list[str | Path], sentence: str
) -> None:
    assert sentence in emulated(*arguments).bad_input
    assert not [row for row in emulated("list", "--json").json["gpus"] if row["instances"]]


def test_a_killed_apply_is_settled_by_the_next_command(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated("list")  # makes the state folder
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "100")
    with subprocess.Popen([*APPLY, str(BOTH)]) as killed:
        until(lambda: EmulatedDriver(state).instances(), "it works", look_s=0.02)
        refused = emulated("apply", BOTH)  # while the other one is at work
        killed.kill()
    assert refused.code == REFUSED
    assert f"is being changed by process {killed.pid}" in refused.refusal
    monkeypatch.setenv("MIGRATOR_EMULATED_PACE", "0")
    assert emulated("show", "--json").json["unfinished"]
    assert "never finished" in emulated("doctor").out
    note = "note: an earlier run was interrupted; its change is settled first\n"
    assert emulated("apply", BOTH, "--dry-run").err == note
    done = emulated("apply", BOTH)
    assert (done.code, done.err) == (OK, note)
    assert emulated("assert", BOTH).code == OK
    assert emulated("doctor").code == OK


# A GPU drawn: slices, and where another instance would fit.


def there(*places: Place) -> list[GpuInstance]:
    return [GpuInstance(place, number, f"MIG-{number}") for number, place in enumerate(places)]


def fits(board: Board, profile: str, *places: Place) -> tuple[int, ...]:
    return room(board, there(*places), board.profile(profile))


@pytest.mark.parametrize("name", boards())
def test_on_an_empty_board_every_profile_fits_at_its_starts(name: str) -> None:
    for profile in board(name).profiles:
        assert fits(board(name), profile.name) == tuple(sorted(profile.starts))


def test_what_fits_beside_others() -> None:
    a100 = board("A100-40GB")
    four, media = Place(0, "4g.20gb"), Place(6, "1g.5gb+me")
    assert fits(a100, "3g.20gb", four) == (4,)
    assert fits(a100, "2g.10gb", four, media) == (4,)
    assert fits(a100, "1g.5gb", four, media) == (4, 5)
    assert fits(a100, "1g.5gb+me", four, media) == ()  # one per GPU
    assert fits(a100, "1g.10gb", four, media) == (4,)
    assert fits(a100, "7g.40gb", media) == ()


def test_slices_drawn() -> None:
    drawn = slices(board("A100-40GB"), there(Place(4, "2g.10gb"), Place(6, "1g.5gb")))
    assert drawn.splitlines() == [
        "slice    0       1       2       3       4       5       6       7",
        "      ................................[   2g.10gb    ][1g.5gb]........",
    ]
