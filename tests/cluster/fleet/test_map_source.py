"""Maps in files, wherever they are: what cannot be read is one sentence."""

from __future__ import annotations

import pytest

from migrator.cluster.fleet.map_source import from_file
from migrator.cluster.shared_files import read_bytes
from migrator.core.errors import InputError


@pytest.mark.parametrize(
    "error",
    [
        ImportError("Install s3fs to access S3"),
        ValueError("Protocol not known: nowhere"),
        OSError("there is no such file"),
    ],
)
def test_an_address_that_cannot_be_opened_is_named_with_the_reason(error: Exception) -> None:
    def read(_: str) -> bytes:
        raise error

    with pytest.raises(InputError, match=rf"--map: s3://b/map.json is no map \({error}\); name"):
        from_file("s3://b/map.json", read)


def test_what_is_no_map_is_refused_and_one_that_is_is_read() -> None:
    with pytest.raises(InputError, match="is no map"):
        from_file("map.json", lambda _: b"\xff")
    assert from_file("map.json", lambda _: b'{"epoch": 3}').map().epoch == 3


def test_an_unknown_protocol_is_refused() -> None:
    pytest.importorskip("fsspec", reason="addresses are fsspec's")
    with pytest.raises(InputError, match=r"nowhere://b/map\.json is no map"):
        from_file("nowhere://b/map.json", read_bytes)
