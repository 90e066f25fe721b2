"""TLS from end to end: `serve`, what calls its daemon, and a gateway in front."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from support.api_server import image_body, running_server
from support.certificates import Authority, authority
from support.gateways import gateway
from support.gpu_cli import answered, migrator, refused
from support.live_daemon import log_of, scenario_file, started
from support.waiting import until

from migrator.cluster.fleet.cluster_map import ClusterMap
from migrator.io.tls import trusting
from migrator.serving.http.access import digest

ADMIN, TENANT = "admin-token-of-16", "photos-token-of-16"
pytestmark = pytest.mark.usefixtures("records")


@dataclass(frozen=True)
class Encrypted:
    """A daemon with TLS and tokens."""

    url: str
    grpc_address: str
    scenario: Path
    state: Path
    token: Path
    ca: Authority

    @property
    def own(self) -> tuple[object, ...]:
        return ("--state", self.state, "--token-file", self.token)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("pki") / "ca")


@pytest.fixture(scope="module")
def daemon(ca: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    """Its certificate names another machine: verbs on this one need no more than its state."""
    folder = tmp_path_factory.mktemp("daemon")
    scenario, state, token = scenario_file(folder, "photos"), folder / "state", folder / "token"
    ca.issue(folder / "certificates", "DNS:gpu-1.example, DNS:localhost")
    tls = "{certificate: certificates/tls.crt, key: certificates/tls.key}"
    live = f"live: {{port: 0, grpc_port: 0, tokens: tokens.yaml, tls: {tls}}}"
    text = scenario.read_text(encoding="utf-8").replace("live: {port: 0}", live)
    scenario.write_text(text, encoding="utf-8")
    token.write_text(ADMIN, encoding="utf-8")
    (folder / "tokens.yaml").write_text(f"admin: {ADMIN}\nphotos: {TENANT}\n", encoding="utf-8")
    with started(scenario, state) as process:

        def addresses() -> list[str]:
            assert process.poll() is None, log_of(state).read_text(encoding="utf-8")
            log = log_of(state).read_text(encoding="utf-8")
            return re.findall(r"(?:serving|gRPC) at (\S+)", log)

        grpc_address, url = until(
            lambda: given if len(given := addresses()) == 2 else None,
            lambda: log_of(state).read_text(encoding="utf-8"),
        )
        yield Encrypted(url, grpc_address, scenario, state, token, ca)


def test_verbs_of_the_same_machine_trust_what_their_daemon_has_published(daemon: Encrypted) -> None:
    done = migrator("admin", "pause", *daemon.own, "--yes")
    assert done.code == 0, done.err
    status = migrator("status", "--state", daemon.state, "--token", ADMIN)
    assert f"running as process {_pid(daemon)} at https://127.0.0.1" in status.out
    assert migrator("admin", "resume", *daemon.own, "--yes").code == 0


def _pid(daemon: Encrypted) -> int:
    url = daemon.url.replace("127.0.0.1", "localhost")
    headers = {"authorization": f"Bearer {ADMIN}"}
    reply = httpx.get(f"{url}/admin/status", headers=headers, verify=trusting(daemon.ca.ca))
    return int(reply.json()["pid"])


def test_verbs_verify_an_address_with_the_given_ca_or_that_of_the_environment(
    daemon: Encrypted, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = daemon.url.replace("127.0.0.1", "localhost")
    action = ("admin", "replan", "--token-file", daemon.token, "--yes", "--url")
    assert migrator(*action, named, "--ca", daemon.ca.ca).code == 0
    said = migrator(*action, named).refusal
    assert "its certificate is not trusted" in said
    assert "--ca or SSL_CERT_FILE" in said
    said = migrator(*action, daemon.url, "--ca", daemon.ca.ca).refusal  # 127.0.0.1 is not in it
    assert "its certificate is not trusted" in said
    monkeypatch.setenv("SSL_CERT_FILE", str(daemon.ca.ca))
    assert migrator(*action, named).code == 0
    assert refused(*action, named, "--ca", "no-such-file")


def test_load_sends_its_requests_over_tls(daemon: Encrypted) -> None:
    named = daemon.url.replace("127.0.0.1", "localhost")
    asked = ("load", daemon.scenario, "--url", named, "--windows", 1, "--now")
    assert answered(*asked, "--ca", daemon.ca.ca)["sent"] > 0
    assert "its certificate is not trusted" in migrator(*asked).refusal


@pytest.mark.parametrize("kind", ["validate", "serve"])
def test_a_scenario_with_bad_files_is_refused_before_anything_starts(
    kind: str, ca: Authority, tmp_path: Path
) -> None:
    scenario = scenario_file(tmp_path, "photos")
    ca.issue(tmp_path / "pair")
    (tmp_path / "pair" / "tls.key").unlink()
    text = scenario.read_text(encoding="utf-8")
    tls = "{port: 0, tls: {certificate: pair/tls.crt, key: pair/tls.key}}"
    scenario.write_text(text.replace("{port: 0}", tls), encoding="utf-8")
    done = migrator(kind, scenario)
    assert done.code == 2
    assert f"live.tls.key: {tmp_path}/pair/tls.key cannot be read (No such file" in done.err


def _map(folder: Path, url: str) -> str:
    homes = {"images": url, "texts": url}
    newest = ClusterMap(1, 1, homes, admin=digest(ADMIN), pages={"g1": url})
    (folder / "map.json").write_bytes(msgspec.json.encode(newest))
    return str(folder / "map.json")


def _infer(url: str, context: ssl.SSLContext) -> httpx.Response:
    headers = {"authorization": f"Bearer {TENANT}"}
    path = "/v2/models/images/infer"
    return httpx.post(f"{url}{path}", json=image_body(), headers=headers, verify=context)


def test_a_gateway_serves_over_tls_and_verifies_its_daemons(ca: Authority, tmp_path: Path) -> None:
    daemons = [str(path) for path in ca.issue(tmp_path / "daemons", "DNS:daemons.example")]
    certificate, key = ca.issue(tmp_path / "gateway")
    own = ("--tls-certificate", str(certificate), "--tls-key", str(key), "--grpc-port", "0")
    trusted = trusting(ca.ca)
    settings: Any = {"tls": daemons, "tokens": {"images": TENANT}, "admin": ADMIN}
    with running_server(**settings) as (url, _):
        file = _map(tmp_path, url)
        trust = ("--ca", str(ca.ca), "--server-name", "daemons.example")
        options = ("--host", "0.0.0.0", "--map", file, *own)
        with gateway(tmp_path / "log", *options, *trust) as address:
            front = address.replace("0.0.0.0", "127.0.0.1")
            assert front.startswith("https://")
            assert _infer(front, trusted).status_code == 200
            assert "sent in clear" not in (tmp_path / "log").read_text(encoding="utf-8")
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("MIGRATOR_ADMIN_TOKEN", ADMIN)
                with gateway(tmp_path / "second", "--map", front, *trust) as second:
                    assert _infer(second, trusted).status_code == 200
        log = tmp_path / "refused"
        with gateway(log, "--map", file, *own, *trust[:2]) as front:  # without the daemons' name
            assert _infer(front, trusted).status_code == 503
        assert "its certificate is not trusted" in log.read_text(encoding="utf-8")


def test_a_gateway_needs_both_files(ca: Authority, tmp_path: Path) -> None:
    certificate, key = ca.issue(tmp_path / "pair")
    for option, path in (("--tls-certificate", certificate), ("--tls-key", key)):
        said = refused("gateway", "--map", "map.json", option, path)
        assert "--tls-certificate, --tls-key: set both" in said
    key.unlink()
    pair = ("--tls-certificate", certificate, "--tls-key", key)
    assert f"--tls-key: {key} cannot be read" in refused("gateway", "--map", "map.json", *pair)


@pytest.mark.parametrize(
    "arguments",
    [
        ("admin", "pause", "--yes", "--url", "http://admin.invalid"),
        ("load", "SCENARIO", "--token", TENANT, "--url", "http://load.invalid"),
        ("gateway", "--port", "0", "--map", "http://map.invalid"),
    ],
)
def test_verbs_warn_before_they_send_a_token_in_clear_to_another_machine(
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MIGRATOR_ADMIN_TOKEN", ADMIN)
    scenario = str(scenario_file(tmp_path, "photos"))
    migrator(*(scenario if word == "SCENARIO" else word for word in arguments))
    assert f"a token is sent in clear to {arguments[0].replace('gateway', 'map')}.invalid" in (
        caplog.text
    )
