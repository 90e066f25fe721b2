"""`migrator gpu` on GPUs in MIG mode, over the fake NVML: refusals, rights, modes, reboots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml, FaultKind
from support.gpu_cli import Answer, gpu

EXAMPLES = Path(__file__).parents[2] / "examples" / "layouts"
BOTH = EXAMPLES / "serve-and-retrain.yaml"
OK, REFUSED = 0, 3


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """A machine with an A100 and an H200, beneath NVIDIA's own binding."""
    monkeypatch.setenv("MIGRATOR_STATE", str(tmp_path / "state"))
    with installed(tmp_path / "fake", ["A100-40GB", "H200-141GB"]) as machine:
        yield machine


def mig(*arguments: str | Path) -> Answer:
    return gpu(*arguments, "--driver", "mig")


def test_mig_is_the_driver_where_there_are_gpus_and_nothing_is_said_of_it() -> None:
    done = gpu("list")
    assert done.err == ""
    assert done.out.splitlines() == [
        "driver mig",
        "GPU  board       MIG mode  instances",
        "0    A100-40GB   on        none",
        "1    H200-141GB  on        none",
    ]


def test_a_gpu_that_is_not_there() -> None:
    assert "this machine has 0, 1" in mig("show", "--gpu", "7").bad_input
    assert "there is no GPU 7" in mig("list", "--gpu", "7", "--json").bad_input


def test_mig_mode_is_switched_on_only_where_asked_for(fake: FakeNvml) -> None:
    fake.mig(False)
    assert "off" in mig("list", "--gpu", "0").out
    assert "--enable-mig" in mig("apply", BOTH).bad_input
    dry = mig("apply", BOTH, "--dry-run", "--enable-mig", "--json")
    assert len(dry.json["steps"]) == 2
    assert dry.err == "note: MIG mode of GPU 0 is off; without --dry-run it is switched on first\n"
    without = mig("apply", BOTH, "--dry-run")
    assert "MIG mode of GPU 0 is off; without --dry-run give --enable-mig too" in without.err
    assert "off" in mig("list", "--gpu", "0").out
    checks = {check["name"]: check for check in mig("doctor", "--json").json["checks"]}
    assert checks["MIG mode"]["verdict"] == "problem"
    assert checks["MIG mode"]["run"] == "sudo nvidia-smi -i 0 -mig 1"
    done = mig("apply", BOTH, "--enable-mig")
    assert done.code == OK
    assert done.err == "note: MIG mode of GPU 0 is on now\n"
    assert len(fake.instances()) == 2


def test_a_foreign_instance_in_the_way(fake: FakeNvml) -> None:
    other = fake.foreign(4, "3g.20gb")
    assert mig("apply", BOTH).out == "create 4g.20gb at 0\n"  # it is what was wanted there
    done = mig("apply", EXAMPLES / "small-services.yaml")
    assert done.code == REFUSED
    assert "3g.20gb at 4" in done.refusal
    assert f"-dgi -gi {other.number}`" in done.refusal
    assert "note: 3g.20gb at 4 is left: not ours\n" in mig("clear").err
    assert fake.layout() == ["3g.20gb at 4"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [(FaultKind.NO_LIBRARY, "no NVIDIA driver library"), (FaultKind.NO_DRIVER, "not loaded")],
)
def test_no_driver(fake: FakeNvml, kind: FaultKind, words: str) -> None:
    fake.fault(kind, None)
    assert words in mig("show").bad_input
    assert words in mig("list", "--json").bad_input
    checks = {check["name"]: check for check in mig("doctor", "--json").json["checks"]}
    assert words in checks["driver"]["words"]
    assert gpu("list", "--json").json["driver"] == "emulated"
