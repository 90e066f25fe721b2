"""The fake machine from a terminal."""

from pathlib import Path

import pytest

from migrator.core.placement import Place
from migrator.gpu.fake_nvml import FakeNvml, FaultKind
from migrator.gpu.fake_nvml.__main__ import main


def _said(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([str(folder), *words]) == 0
    return capsys.readouterr().out


def test_an_evening_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = _said(tmp_path, capsys, "board", "A100-40GB", "H200-141GB", "--mig-off")
    assert "GPU 1: H200-141GB, MIG off" in said
    assert "GPU 0: A100-40GB, MIG on" in _said(tmp_path, capsys, "mig", "on")
    said = _said(tmp_path, capsys, "foreign", "4", "3g.20gb")
    assert "3g.20gb at 4 (GPU instance 2)\n" in said
    said = _said(tmp_path, capsys, "foreign", "0", "1g.5gb", "--half")
    assert "1g.5gb at 0 (GPU instance 7, no compute instance)" in said
    assert "held by unknown (process 4000000)" in _said(
        tmp_path, capsys, "hold", "4", "--pid", "4000000"
    )
    assert "held" not in _said(tmp_path, capsys, "release", "--pid", "4000000")
    said = _said(tmp_path, capsys, "fault", "transient-destroy", "--count", "2", "--after", "1")
    assert "fault transient-destroy: 2 times, after 1 calls" in said
    assert "until mended" in _said(tmp_path, capsys, "fault", "no-permission", "--always")
    assert "fault" not in _said(tmp_path, capsys, "mend")
    _said(tmp_path, capsys, "remove", "0")
    fake = FakeNvml(tmp_path)
    assert [each.place for each in fake.instances()] == [Place(4, "3g.20gb")]
    boot = fake.boot_id()
    assert "3g.20gb" not in _said(tmp_path, capsys, "reboot")
    assert fake.boot_id() != boot
    assert _said(tmp_path, capsys, "show").startswith(f"boot {fake.boot_id()}")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["foreign", "3", "3g.20gb"], "no room for 3g.20gb at 3"),
        (["foreign", "0", "3g.71gb"], "has no MIG profile"),
        (["foreign", "0", "3g.20gb", "--gpu", "7"], "no GPU 7; the fake machine has 1"),
        (["hold", "3", "--pid", "1"], "no instance starts at 3"),
        (["remove", "3"], "no instance starts at 3"),
        (["board", "A30-24GB"], "delete the folder to begin anew"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    FakeNvml(tmp_path)
    assert main([str(tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert said.count("\n") == 1


def test_the_help_names_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["folder", "fault", "--help"])
    said = capsys.readouterr().out
    assert all(kind in said for kind in FaultKind)
