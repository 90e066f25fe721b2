"""`migrator gpu --driver mps`, over stand-ins for nvidia-smi and MPS's control program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.fake_nvml.library import installed
from support.fake_nvml.machine import FakeNvml
from support.gpu_cli import Answer, gpu

from migrator.gpu.drivers import nvidia_smi
from migrator.gpu.drivers.mps import MpsDriver
from migrator.io.processes import boot_id

SERVICES = Path(__file__).parents[2] / "examples" / "layouts" / "small-services.yaml"
OK, REFUSED = 0, 3


pytestmark = pytest.mark.usefixtures("state")  # a state folder for each test


def mps(*arguments: str | Path) -> Answer:
    return gpu(*arguments, "--driver", "mps")


def daemons() -> list[dict[str, Any]]:
    """What the doctor says of daemons of ours; other tests may have some at the same time."""
    checks = mps("doctor", "--json").json["checks"]
    return [share for share in checks if share["name"] == "MPS" and "our daemon" in share["words"]]


def test_without_nvidia_smi_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no nvidia-smi" in mps("show").bad_input
    assert "no nvidia-smi" in mps("list", "--json").bad_input
    assert mps("doctor").code == REFUSED


@pytest.mark.usefixtures("programs")
def test_shares_come_and_go_and_so_does_the_daemon(state: Path) -> None:
    assert mps("list", "--json").json["gpus"][0]["mig_mode"] is False
    assert daemons() == []
    assert len(mps("apply", SERVICES, "--json").json["steps"]) == 4
    assert "off: instances are MPS shares" in mps("show").out
    (ours,) = daemons()
    assert ours["verdict"] == "ok"
    assert mps("assert", SERVICES).code == OK
    assert mps("clear").code == OK
    assert not list(state.rglob("*.pid"))
    assert daemons() == []


@pytest.mark.usefixtures("programs")
def test_clearing_another_driver_forgets_no_shares(tmp_path: Path) -> None:
    """NVML and nvidia-smi report the same GPU, in the same boot."""
    fake = FakeNvml(tmp_path / "fake", ["H200-141GB"], mig=False)
    with fake.store.changing() as machine:
        machine.boot_id = boot_id()
        machine.gpus[0].uuid = nvidia_smi.find_gpu(0).uuid
    mps("apply", SERVICES)
    with installed(tmp_path / "fake"):
        cleared = gpu("clear", "--json")
    assert (cleared.json, cleared.err) == ({"steps": []}, "")
    assert len(mps("clear", "--json").json["steps"]) == 4
    assert daemons() == []


@pytest.mark.usefixtures("programs")
def test_show_starts_no_daemon_and_the_doctor_warns_of_a_dead_one(state: Path) -> None:
    mps("apply", SERVICES)
    MpsDriver.open(0, state).daemon.quit()
    (instance, *_) = mps("show", "--json").json["instances"]
    assert instance["environment"]["CUDA_MPS_PIPE_DIRECTORY"].startswith(str(state))
    assert MpsDriver.open(0, state).daemon.running() is None
    checks = mps("doctor", "--json").json["checks"]
    assert [check["verdict"] for check in checks if "daemon does not run" in check["words"]] == [
        "warning"
    ]
