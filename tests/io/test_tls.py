"""Certificates of servers: what is refused at the start, and what stays in use at a reload."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.certificates import Authority, authority, encrypt
from support.waiting import LIMIT_S

from migrator.core.errors import InputError, MigratorError
from migrator.io.tls import ServerCertificate, TlsFiles, pinned, trusting

LONG_AGO = ("20200101000000Z", "20210101000000Z")
FUTURE = ("20990101000000Z", "20991231000000Z")


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("pki") / "ca")


@pytest.fixture(scope="module")
def pair(ca: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate and its key."""
    return ca.issue(tmp_path_factory.mktemp("pair") / "at")[0].parent


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are looked at all the time."""
    monkeypatch.setattr("migrator.io.tls.RELOAD_S", 0.01)


@asynccontextmanager
async def _followed(certificate: ServerCertificate) -> AsyncIterator[None]:
    following = asyncio.create_task(certificate.follow())
    try:
        yield
    finally:
        following.cancel()


async def _until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not happened():
            await asyncio.sleep(0.01)


def _files(folder: Path) -> TlsFiles:
    return TlsFiles(folder / "tls.crt", folder / "tls.key")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:150])


def _damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60] + b"\xe9" + path.read_bytes()[60:])


def _other_key(ca: Authority, folder: Path) -> None:
    _, key = ca.issue(folder.parent / "other")
    shutil.copy(key, folder / "tls.key")


def _unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()  # root may read any file, and no directory


BAD: dict[str, tuple[Callable[[Authority, Path], object], str]] = {
    "no key": (lambda _, at: (at / "tls.key").unlink(), "live.tls.key: .*cannot be read"),
    "no certificate": (lambda _, at: (at / "tls.crt").unlink(), "live.tls.certificate: .*No such"),
    "unreadable": (lambda _, at: _unreadable(at / "tls.key"), "live.tls.key: .*cannot be read"),
    "half a certificate": (lambda _, at: _cut(at / "tls.crt"), "holds no certificate"),
    "damaged certificate": (lambda _, at: _damage(at / "tls.crt"), "is no valid certificate"),
    "half a key": (lambda _, at: _cut(at / "tls.key"), "live.tls.key: .*cannot be used"),
    "another key": (_other_key, "live.tls.key: .*is not the key of"),
    "encrypted": (lambda _, at: encrypt(at / "tls.key"), "live.tls.key: .*is encrypted"),
    "expired": (lambda ca, at: ca.issue(at, dates=LONG_AGO), "certificate has expired"),
    "not yet valid": (lambda ca, at: ca.issue(at, dates=FUTURE), "not yet valid"),
    "of a client": (lambda ca, at: ca.issue(at, usage="clientAuth"), "is not accepted"),
    "no PEM": (
        lambda _, at: (at / "tls.crt").write_text(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", encoding="utf-8"
        ),
        "is no valid certificate",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_at_the_start_and_the_message_names_the_file(
    case: str, ca: Authority, pair: Path, tmp_path: Path
) -> None:
    spoil, reason = BAD[case]
    shutil.copytree(pair, tmp_path / "at")
    spoil(ca, tmp_path / "at")
    with pytest.raises(InputError, match=reason):
        ServerCertificate(_files(tmp_path / "at"))


@pytest.mark.parametrize("case", ["unreadable", "half a certificate"])
@pytest.mark.usefixtures("often")
async def test_with_bad_files_the_certificate_in_use_stays_and_a_warning_is_logged_once(
    case: str, ca: Authority, pair: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil, reason = BAD[case]
    shutil.copytree(pair, tmp_path / "at")
    certificate = ServerCertificate(_files(tmp_path / "at"))
    before = certificate.current
    spoil(ca, tmp_path / "at")
    async with _followed(certificate):
        await _until(lambda: bool(caplog.records))
        await asyncio.sleep(0.1)
    assert certificate.current is before
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert re.search(reason, record.message)
    assert "The certificate in use stays" in record.message
    caplog.clear()
    if (tmp_path / "at" / "tls.key").is_dir():
        (tmp_path / "at" / "tls.key").rmdir()
    ca.issue(tmp_path / "at")
    async with _followed(certificate):
        await _until(lambda: certificate.current is not before)


@pytest.mark.usefixtures("often")
async def test_clients_of_the_machine_trust_the_old_and_the_new_one_and_no_other(
    ca: Authority, tmp_path: Path
) -> None:
    ca.issue(tmp_path / "at", "DNS:elsewhere.example")
    certificate = ServerCertificate(_files(tmp_path / "at"))
    certificate.publish(tmp_path / "certificates.pem")
    before = certificate.current
    ca.issue(tmp_path / "at", "DNS:elsewhere.example")
    async with _followed(certificate):
        await _until(lambda: certificate.current is not before)
    for server in (before, certificate.current):
        assert _handshake(server.context, pinned(tmp_path / "certificates.pem"))
    ca.issue(tmp_path / "other")
    other = ServerCertificate(_files(tmp_path / "other"))
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(other.current.context, pinned(tmp_path / "certificates.pem"))


def test_what_a_client_is_to_trust_must_be_certificates(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("no certificate", encoding="utf-8")
    for missing in ("none.pem", "missing.pem"):
        with pytest.raises(InputError, match=f"--ca: .*{missing} holds no certificates"):
            trusting(tmp_path / missing)
        with pytest.raises(MigratorError, match=f"{missing}: holds no certificates"):
            pinned(tmp_path / missing)


def test_a_file_whose_reading_would_never_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"--ca: .*pipe is a FIFO"):
        trusting(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"live\.tls\.certificate: .*pipe is a FIFO"):
        TlsFiles(tmp_path / "pipe", tmp_path / "pipe").read()


@pytest.mark.usefixtures("often")
async def test_a_certificate_that_ends_soon_is_warned_about(
    ca: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 86_400))
    ca.issue(tmp_path / "at", dates=("20200101000000Z", end))
    async with _followed(ServerCertificate(_files(tmp_path / "at"))):
        await _until(lambda: bool(caplog.records))
    assert "is valid until" in caplog.text


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return theirs.version() == "TLSv1.3"
