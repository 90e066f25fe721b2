"""When a token is sent in clear."""

from __future__ import annotations

import pytest

from migrator.io.http_client import warn_if_clear


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://192.0.2.1:8600", True),
        ("http://gpu.invalid:8600", True),
        ("https://192.0.2.1:8600", False),
        ("http://127.0.0.1:8600", False),
        ("http://localhost:8600", False),
        ("http://[::1]:8600", False),
        ("http://0.0.0.0:8600", False),
    ],
)
def test_a_token_in_clear_to_another_machine_is_warned_about(
    url: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_clear(url)
    assert ("a token is sent in clear to" in caplog.text) is warned
