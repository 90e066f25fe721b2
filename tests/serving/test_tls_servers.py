"""HTTP and gRPC over TLS: verified, reloaded while they serve, and with the same limits."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from support.api_server import FILE_BYTES, SIDE, image_body, received, running_server, triton_image
from support.certificates import Authority, authority
from support.waiting import until

from migrator.io.tls import trusting

triton: Any = import_module("tritonclient.grpc")  # it has no types

_CLIENT = ("openssl", "s_client", "-cipher", "ALL:@SECLEVEL=0")
INFER = "/v2/models/images/infer"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("pki") / "ca")


class Server(NamedTuple):
    """A running server: its folder, with its certificate and its log, and its addresses."""

    folder: Path
    url: str
    grpc: str

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")


@contextmanager
def running(ca: Authority, folder: Path, **settings: Any) -> Iterator[Server]:
    files = [str(path) for path in ca.issue(folder / "at")]
    log = str(folder / "log")
    with running_server(tls=files, grpc=True, log=log, **settings) as (url, process):
        assert url.startswith("https://")
        assert process.stdout is not None
        yield Server(folder, url, process.stdout.readline().strip())


@pytest.fixture(scope="module")
def server(ca: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(ca, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def small(ca: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With low limits; beside its `connections`, 32 handshakes may be under way."""
    limits = {"body_bytes": 10_000, "body_s": 5, "write_s": 0.5, "connections": 4, "header_s": 3}
    with running(ca, tmp_path_factory.mktemp("small"), limits=limits) as server:
        yield server


@contextmanager
def connected(url: str, ca: Authority, *protocols: str) -> Iterator[ssl.SSLSocket]:
    host, _, port = url.removeprefix("https://").partition(":")
    context = trusting(ca.ca)
    context.set_alpn_protocols(protocols)
    with (
        closing(socket.create_connection((host, int(port)), timeout=60)) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        yield secure


def _ask(connection: ssl.SSLSocket, path: str = "/v2/health/live") -> bytes:
    connection.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"}"):
        part = connection.recv(65536)
        assert part, answer
        answer += part
    return answer


def _serial(url: str, ca: Authority) -> str:
    """Of the certificate that a new connection gets."""
    with connected(url, ca) as connection:
        return str((connection.getpeercert() or {})["serialNumber"])


def _grpc_infer(client: Any) -> Any:
    return client.infer("images", [triton_image(triton)]).get_response().model_version


def _grpc_serial(address: str, ca: Authority) -> str:
    with connected(address, ca, "h2") as secure:
        assert secure.selected_alpn_protocol() == "h2"
        return str((secure.getpeercert() or {})["serialNumber"])


def test_http_and_grpc_answer_over_tls_with_the_whole_chain(ca: Authority, server: Server) -> None:
    url = server.url
    with httpx.Client(verify=trusting(ca.ca)) as client:
        reply = client.post(f"{url}{INFER}", json=image_body())
        assert (reply.status_code, reply.json()["model_version"]) == (200, "7")
        own = {"origin": url, "sec-fetch-site": "same-origin"}
        assert client.get(f"{url}/metrics", headers=own).status_code == 200
        assert len(client.get(f"{url}/file").content) == FILE_BYTES
        rows = 2000
        body = image_body(shape=[rows, 3, SIDE, SIDE], data=[0] * rows * 3 * SIDE**2)
        assert client.post(f"{url}{INFER}", json=body).status_code in (200, 400)
    with triton.InferenceServerClient(
        server.grpc, ssl=True, root_certificates=str(ca.ca)
    ) as client:
        assert _grpc_infer(client) == "7"


def test_clients_that_do_not_trust_the_ca_or_send_in_clear_get_no_answer(
    ca: Authority, server: Server
) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(server.url)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(server.url.replace("https", "http"))
    with (
        triton.InferenceServerClient(server.grpc) as client,
        pytest.raises(triton.InferenceServerException),
    ):
        client.is_server_live(client_timeout=5)
    with connected(server.url, ca) as connection:
        assert b" 200 " in _ask(connection)


def test_old_versions_of_tls_are_refused(server: Server) -> None:
    address = server.url.removeprefix("https://")
    for version, refused in (("-tls1_1", True), ("-tls1_2", False)):
        command = [*_CLIENT, version, "-connect", address]
        done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
        assert ("Cipher is (NONE)" in done.stdout) is refused


def test_a_reload_loses_no_connection_and_new_ones_get_the_new_certificate(
    ca: Authority, server: Server
) -> None:
    url, address = server.url, server.grpc
    with ExitStack() as stack:
        kept = [stack.enter_context(connected(url, ca)) for _ in range(3)]
        client = stack.enter_context(
            triton.InferenceServerClient(address, ssl=True, root_certificates=str(ca.ca))
        )
        before = _serial(url, ca)
        assert _grpc_infer(client) == "7"
        assert _grpc_serial(address, ca) == before
        busy = stack.enter_context(httpx.Client(verify=trusting(ca.ca)))
        ca.issue(server.folder / "at")

        def reloaded() -> bool:
            assert busy.post(f"{url}{INFER}", json=image_body()).status_code == 200
            assert _grpc_infer(client) == "7"
            return _serial(url, ca) != before and _grpc_serial(address, ca) != before

        until(reloaded, lambda: "new connections get the new certificate")
        for connection in kept:
            assert b" 200 " in _ask(connection)


def test_half_a_file_during_a_reload_keeps_the_old_certificate_and_is_logged(
    ca: Authority, server: Server, tmp_path: Path
) -> None:
    url, at = server.url, server.folder / "at"
    before = _serial(url, ca)
    ca.issue(tmp_path)
    (at / "tls.key").write_bytes((tmp_path / "tls.key").read_bytes()[:100])
    until(lambda: "The certificate in use stays" in server.log, lambda: server.log)
    assert _serial(url, ca) == _grpc_serial(server.grpc, ca) == before
    for name in ("tls.key", "tls.crt"):
        (at / name).write_bytes((tmp_path / name).read_bytes())
    until(lambda: _serial(url, ca) != before, lambda: server.log)


def test_a_client_gets_its_refusal_while_it_still_sends(ca: Authority, small: Server) -> None:
    with connected(small.url, ca) as connection:
        connection.sendall(
            f"POST {INFER} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            "content-length: 1000000\r\n\r\n".encode()
        )
        connection.sendall(b" " * 500_000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    with connected(small.url, ca) as connection:
        connection.sendall(b"\0" * 100 + b"\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_does_not_read_is_disconnected(ca: Authority, small: Server) -> None:
    with httpx.Client(verify=trusting(ca.ca)) as client:

        def files() -> int:
            return int(client.get(f"{small.url}/admin/status").json()["files"])

        before = min(files() for _ in range(10))  # others are open for a moment
        with connected(small.url, ca) as slow:
            # the system's buffer could hold the whole file
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            slow.sendall(b"GET /file HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            until(lambda: files() > before, lambda: "the connection is open")
            until(lambda: files() <= before, lambda: "the connection is closed")
            got = b""
            with suppress(OSError):  # it may also end without the closing message of TLS
                got = received(slow)
            assert len(got) < FILE_BYTES


def test_connections_without_a_handshake_are_limited_and_end(ca: Authority, small: Server) -> None:
    host, _, port = small.url.removeprefix("https://").partition(":")
    sent = (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000)
    with ExitStack() as stack, httpx.Client(verify=trusting(ca.ca)) as client:
        idle = [
            stack.enter_context(closing(socket.create_connection((host, int(port)), timeout=30)))
            for _ in range(60)
        ]
        for number, connection in enumerate(idle):
            with suppress(ConnectionError):
                connection.sendall(sent[number % len(sent)])
        assert client.get(f"{small.url}/admin/status").json()["files"] < 32 + 40
        for connection in idle:
            with suppress(ConnectionResetError):
                received(connection)
        assert client.get(f"{small.url}/v2/health/live").status_code == 200


def test_requests_right_behind_the_handshake_are_answered(ca: Authority, server: Server) -> None:
    """With TLS 1.3 the first request may arrive with the end of the handshake."""
    host, _, port = server.url.removeprefix("https://").partition(":")
    for _ in range(20):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting(ca.ca).wrap_bio(incoming, outgoing, server_hostname=host)
        with closing(socket.create_connection((host, int(port)), timeout=30)) as plain:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(65536))
            client.write(b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            plain.sendall(outgoing.read())
            answer = b""
            while b"}" not in answer:
                try:
                    answer += client.read(65536)
                except ssl.SSLWantReadError:
                    part = plain.recv(65536)
                    assert part, answer
                    incoming.write(part)
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["ready"]
