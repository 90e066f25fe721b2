"""TLS: the certificate of a server, read again when its files change, and what clients trust."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from migrator.core.errors import InputError, MigratorError
from migrator.io.atomic_write import write_atomically
from migrator.io.file_kind import may_never_end

RELOAD_S = 2.0
"""Seconds between two looks at the files."""
_SOON_S = 7 * 86_400
"""A certificate that ends sooner is warned about."""
_MOST_BYTES = 2**20
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TlsFiles:
    """The files of a certificate, with the chain up to its CA, and of its private key."""

    certificate: Path
    key: Path
    names: tuple[str, str] = ("live.tls.certificate", "live.tls.key")
    """What the user calls them."""

    def read(self) -> KeyPair:
        """Both files as they are now; InputError if one cannot be read."""
        return KeyPair(
            _read(self.certificate, self.names[0], "the certificate in PEM"),
            _read(self.key, self.names[1], "the private key in PEM"),
        )

    def load(self, pair: KeyPair) -> LoadedCertificate:
        """The pair, once a client has verified it; InputError says what is wrong with it."""
        leaf = _CERTIFICATE.search(pair.certificate)
        if leaf is None:
            self._refuse(0, "holds no certificate", "name a file in PEM with the whole chain")
        client = _client_without_cas()
        try:
            client.load_verify_locations(cadata=leaf[0].decode("ascii", "backslashreplace"))
        except ssl.SSLError as error:
            self._refuse(0, f"is no valid certificate ({error.reason})", "write it again")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        try:
            # from memory: both files may change at any time, and a key is not copied to a disk
            with _memory_file(pair.certificate) as chain, _memory_file(pair.key) as key:
                context.load_cert_chain(chain, key, password=self._refuse_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                self._refuse(1, f"is not the key of {self.certificate}", "give both of one pair")
            self._refuse(1, f"cannot be used ({error.reason or error})", "give its key in PEM")
        try:
            return LoadedCertificate(pair, context, _until_s(context, client))
        except ssl.SSLCertVerificationError as error:
            self._refuse(0, f"is not accepted ({error.verify_message})", "renew it")
        except ssl.SSLError as error:
            self._refuse(0, f"cannot be used ({error.reason or error})", "renew it and its key")

    def _refuse_password(self) -> str:
        self._refuse(1, "is encrypted", "give it without a password, readable only by this user")

    def _refuse(self, which: int, wrong: str, remedy: str) -> NoReturn:
        path = (self.certificate, self.key)[which]
        raise InputError(f"{self.names[which]}: {path} {wrong}; {remedy}")


@dataclass(frozen=True)
class KeyPair:
    """A certificate with its chain, and its key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class LoadedCertificate:
    """A valid pair and the server's context with it."""

    pair: KeyPair
    context: ssl.SSLContext
    until_s: float
    """Unix time of its end."""

    @property
    def end(self) -> str:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.until_s))


class ServerCertificate:
    """The certificate that new connections get: the newest valid one of its files."""

    def __init__(self, files: TlsFiles) -> None:
        """InputError if the files cannot be used."""
        self._files = files
        self.current = files.load(files.read())
        self._published: Path | None = None
        self._trouble, self._warned = "", False

    def publish(self, path: Path) -> None:
        """Keep the certificates in use in a file, for clients of this machine to `pin`."""
        self._published = path
        self._write(self.current)

    async def follow(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_S)
            await asyncio.to_thread(self._refresh)

    def _refresh(self) -> None:
        try:
            pair = self._files.read()
            if pair != self.current.pair:
                newer = self._files.load(pair)
                self._write(self.current, newer)  # first: its clients must know the newer one
                self.current, self._warned = newer, False
                _log.info("%s: a new one, valid until %s", self._files.names[0], newer.end)
            self._trouble = ""
        except (MigratorError, OSError) as error:  # such as too many open files
            if str(error) != self._trouble:
                _log.warning("%s. The certificate in use stays, until %s", error, self.current.end)
            self._trouble = str(error)
        if not self._warned and self.current.until_s < time.time() + _SOON_S:
            self._warned = True
            _log.warning(
                "%s: %s is valid until %s; renew it",
                self._files.names[0],
                self._files.certificate,
                self.current.end,
            )

    def _write(self, *certificates: LoadedCertificate) -> None:
        if self._published is None:
            return
        leaves = [_CERTIFICATE.findall(loaded.pair.certificate)[0] for loaded in certificates]
        with write_atomically(self._published) as unfinished:
            unfinished.write_bytes(b"\n".join([*leaves, b""]))


def trusting(ca: Path | None) -> ssl.SSLContext:
    """For clients: trusts that file of CAs alone, or those of the system and SSL_CERT_FILE.

    Raises InputError.
    """
    if ca is not None and may_never_end(ca):
        raise InputError(f"--ca: {ca} is a FIFO, socket or device; name a file in PEM")
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise InputError(
            f"--ca: {ca} holds no certificates ({error.strerror or error}); name a file in PEM"
        ) from error


def pinned(published: Path) -> ssl.SSLContext:
    """For clients: trusts exactly the certificates that a server of this machine has published,
    whatever address they name. Raises MigratorError if there are none."""
    context = _client_without_cas()
    try:
        context.load_verify_locations(published)
    except OSError as error:
        raise MigratorError(
            f"{published}: holds no certificates ({error.strerror or error}); pass --ca, or "
            "restart the daemon"
        ) from error
    return context


def _client_without_cas() -> ssl.SSLContext:
    """Trusts the certificates that are loaded later, also those that no CA has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _until_s(server: ssl.SSLContext, client: ssl.SSLContext) -> float:
    """When the certificate ends, after a handshake in memory. Raises SSLError if that fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server)
    for side in (theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    end = (theirs.getpeercert() or {})["notAfter"]
    return float(ssl.cert_time_to_seconds(str(end)))


def _read(path: Path, name: str, what: str) -> bytes:
    if may_never_end(path):
        raise InputError(f"{name}: {path} is a FIFO, socket or device; name the file of {what}")
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise InputError(
            f"{name}: {path} cannot be read ({error.strerror}); name the file of {what}"
        ) from error


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """The path of a file in memory, because contexts read certificates from files only."""
    with os.fdopen(os.memfd_create("pem"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
