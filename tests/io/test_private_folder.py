"""State folders are the daemon's alone."""

import stat
from pathlib import Path

import pytest

from migrator.core.errors import InputError
from migrator.io.folders import private_folder


def test_a_daemon_refuses_a_folder_that_others_can_write(tmp_path: Path) -> None:
    assert stat.S_IMODE(private_folder(tmp_path / "own").stat().st_mode) == 0o700
    (tmp_path / "own").chmod(0o777)
    with pytest.raises(InputError, match="other users can write"):
        private_folder(tmp_path / "own")
