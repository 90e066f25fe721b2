"""Hostile requests against a real daemon and gateway: python -m benchmarks.attack [--out FOLDER]

Starts `migrator serve` on the emulated driver and `migrator gateway` before it, without tokens, and
sends one attack after the other, all over 127.0.0.1 and of bounded size. A second daemon gets those
that need a model of texts. For each: the status that
the attacker got, the slowest health check meanwhile (the time until a new connection is answered
with 200), and the daemon's resident memory before, at most and after.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import grpc
import numpy as np

from benchmarks.flood import Tenant, daemon, memory_mib
from benchmarks.machine import describe_machine
from migrator.serving.grpc.messages import message_classes

MIB = 2**20
LONGEST_S = 70.0
"""An attack ends by then, whatever the server does."""
SETTLE_S = 1.0
TEXT_INFER = "/v2/models/texts/infer"
BATCH, TEXT_BYTES = 32, 2**16
INFER, FEEDBACK = "/v2/models/images/infer", "/v2/models/images/feedback"
DIGITS = "1" * 5000
JSON, FOREIGN = {"content-type": "application/json"}, {"origin": "http://example.com"}
REBOUND = {"host": "example.com"}


@dataclass(frozen=True)
class Result:
    """One attack, as the attacker and somebody who checks health saw it."""

    case: str
    status: str
    seconds: float
    slowest_health_ms: float
    rss_before_mib: float
    rss_peak_mib: float
    rss_after_mib: float


class Target:
    """A server under attack."""

    def __init__(self, url: str, log: Path, tenant: str = "images") -> None:
        """`log`: of the daemon; it names the gRPC port."""
        match = re.search(r"gRPC at (\S+):(\d+)", log.read_text(encoding="utf-8"))
        assert match
        self.log, self.grpc = log, (match[1], int(match[2]))
        self.url, self.port = url, urlsplit(url).port or 80
        with urlopen(f"{url}/v2/models/{tenant}") as answer:
            self.shape: list[int] = [1, *json.load(answer)["inputs"][0]["shape"][1:]]
        self.size = math.prod(self.shape)

    def connect(self, timeout_s: float = LONGEST_S) -> socket.socket:
        """A connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout_s)

    def tensor(self, **fields: object) -> dict[str, object]:
        """One image."""
        return {"name": "input", "datatype": "UINT8", "shape": self.shape, **fields}

    def image(self, **fields: object) -> bytes:
        """The body of a request that is fine."""
        return json.dumps({"inputs": [self.tensor(data=[7] * self.size)], **fields}).encode()

    def ask(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[str, bytes]:
        """The status and body of one answer; "reset" where there is none."""
        sent = {"host": f"127.0.0.1:{self.port}", "connection": "close", **(headers or {})}
        if body is not None:
            sent["content-length"] = str(len(body))
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in sent.items()]
        with self.connect() as connection:
            return answer(connection, "\r\n".join([*lines, "", ""]).encode() + (body or b""))


def answer(connection: socket.socket, request: bytes) -> tuple[str, bytes]:
    """What comes back once all of the request is sent."""
    received = b""
    try:
        connection.sendall(request)
        while part := connection.recv(MIB):
            received += part
    except (ConnectionError, TimeoutError) as error:
        if not received:
            return ("silence" if isinstance(error, TimeoutError) else "reset"), b""
    head, _, body = received.partition(b"\r\n\r\n")
    return (head.split(b" ", 2)[1].decode() if head else "closed"), body


def endless(target: Target, start: bytes, part: bytes, most: int = 64 * MIB) -> str:
    """Send parts until the server answers or ends the connection."""
    until_s, sent = time.monotonic() + LONGEST_S, 0
    with target.connect() as connection:
        try:
            connection.sendall(start)
            while sent < most and time.monotonic() < until_s:
                sent += connection.send(part)
                connection.setblocking(False)
                with suppress(BlockingIOError):
                    if head := connection.recv(64):
                        return head.split(b" ", 2)[1].decode()
                connection.settimeout(LONGEST_S)
            return answer(connection, b"")[0] + f" after {sent // MIB} MiB"
        except (ConnectionError, TimeoutError):
            with suppress(OSError):  # what was answered before the reset can still be read
                if head := connection.recv(64):
                    return head.split(b" ", 2)[1].decode()
            return f"reset after {sent // MIB} MiB"


def many_strings(target: Target) -> str:
    body = {"inputs": [target.tensor(data=["x" * 10**6, *[""] * 500])]}
    return target.ask(INFER, json.dumps(body).encode(), JSON)[0]


def booleans(target: Target) -> str:
    body = {"inputs": [target.tensor(data=[True] * target.size)]}
    return target.ask(INFER, json.dumps(body).encode(), JSON)[0]


def empty_lists(target: Target) -> str:
    body = json.dumps({"inputs": [target.tensor(data=0)]}, separators=(",", ":"))
    lists = "[" + ",".join(["[]"] * (15 * MIB // 3)) + "]"
    return target.ask(INFER, body.replace('"data":0', f'"data":{lists}').encode(), JSON)[0]


def large_parameters(target: Target) -> str:
    body = target.image(parameters={"a": 0})
    lists = b"[" + b",".join([b"[]"] * (15 * MIB // 3)) + b"]"
    return target.ask(INFER, body.replace(b'{"a": 0}', b'{"a": ' + lists + b"}"), JSON)[0]


def endless_header(target: Target) -> str:
    return endless(target, b"GET /v2 HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ", b"a" * 65536)


def endless_trailer(target: Target) -> str:
    start = f"POST {INFER} HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    return endless(target, start.encode() + b"2\r\n{}\r\n0\r\nx: ", b"a" * 65536)


def slow_readers(target: Target) -> str:
    """1,100 connections with 300 requests each for the largest file of the live page, no answer of
    which is read; until all have ended."""
    request = 300 * b"GET /dashboard/static/charts.js HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    held: list[socket.socket] = []
    begun_s = time.monotonic()
    try:
        for _ in range(1100):
            held.append(target.connect())
            held[-1].sendall(request)
        while (left := open_at(target.port)) > 50 and time.monotonic() < begun_s + LONGEST_S:
            time.sleep(0.2)
    except OSError as error:
        return f"{len(held)} connections, then {error}"
    finally:
        for connection in held:
            connection.close()
    return f"{left} still open after {time.monotonic() - begun_s:.0f} s"


def open_at(port: int) -> int:
    """Established connections at the server's end."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def recent_inputs(target: Target) -> str:
    """Forty small images in bodies of 15 MiB: how much is kept for feedback?"""
    statuses: Counter[str] = Counter()
    parameters = {"binary_data_size": target.size}
    head = json.dumps({"inputs": [target.tensor(parameters=parameters)]}).encode()
    body = head + b" " * (15 * MIB - len(head)) + bytes(target.size)
    headers = {"inference-header-content-length": str(15 * MIB)}
    headers |= {"content-type": "application/octet-stream", "timeout-ms": "60000"}
    for _ in range(40):
        statuses[target.ask(INFER, body, headers)[0]] += 1
    return counted(statuses)


def long_header(target: Target) -> str:
    headers = {**JSON, "inference-header-content-length": DIGITS.replace("1", "0", 4000)}
    return counted(Counter(target.ask(path, target.image(label=1), headers)[0] for path in BOTH))


def huge_timeout(target: Target) -> str:
    bodies = [target.image(parameters={key: 10**400}) for key in ("timeout_ms", "timeout")]
    return counted(Counter(target.ask(INFER, body, JSON)[0] for body in bodies))


def long_path(target: Target) -> str:
    paths = (f"/dashboard/0/{DIGITS}", f"/dashboard/{DIGITS}/0", f"/dashboard/0/0/windows/{DIGITS}")
    return counted(Counter(target.ask(path)[0] for path in paths))


def bad_host(target: Target) -> str:
    return counted(Counter(target.ask(path, None, {"host": "["})[0] for path in ("/x", "/metrics")))


def foreign_feedback(target: Target) -> str:
    body = target.image(label=1)
    every: tuple[dict[str, str], ...] = ({**JSON, **FOREIGN}, {**JSON, **REBOUND}, {})
    return ", ".join(target.ask(FEEDBACK, body, headers)[0] for headers in every)


def foreign_pages(target: Target) -> str:
    """Of a gateway: what another site's page gets to see."""
    paths, every = ("/cluster", "/cluster/map", "/metrics"), (FOREIGN, REBOUND)
    return counted(Counter(target.ask(p, None, headers)[0] for p in paths for headers in every))


def best_of_json(target: Target) -> str:
    """Whether the best of the JSON scores is the label."""
    status, body = target.ask(INFER, target.image(), JSON)
    if status != "200":
        return status
    data = {load["name"]: load["data"] for load in json.loads(body)["outputs"]}
    numbers = [np.nan if score is None else score for score in data["scores"]]
    finite = bool(np.isfinite(numbers).all())
    return f"200, {'finite' if finite else 'not finite'}, {agreement(numbers, data['label'][0])}"


def agreement(scores: list[float], label: int) -> str:
    return "best is the label" if int(np.argmax(scores)) == label else "best is not the label"


def oversized(target: Target) -> str:
    """Bodies of 64 MiB that are sent whole before the answer is read."""
    declared = target.ask(INFER, b" " * (64 * MIB), JSON)[0]
    head = f"POST {INFER} HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = (b"100000\r\n" + b" " * MIB + b"\r\n") * 64 + b"0\r\n\r\n"
    with target.connect() as connection:
        return f"{declared}, {answer(connection, head.encode() + chunks)[0]}"


IDLE = b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def idle_connections(target: Target) -> str:
    """1,100 connections that send one small request every 8 s, for 10 s; others meanwhile."""
    with ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(target.connect()).sendall(IDLE)
        statuses: Counter[str] = Counter()
        for _ in range(20):
            statuses[target.ask("/v2")[0]] += 1
            time.sleep(0.5)
    return counted(statuses)


def unfinished_bodies(target: Target) -> str:
    """60 bodies of 15 MiB without their end, held for 3 s; one whole request meanwhile."""
    head = f"POST {INFER} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {15 * MIB}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(60):
            connection = stack.enter_context(target.connect())
            with suppress(ConnectionError):
                connection.sendall(head.encode() + b" " * (15 * MIB - 1))
        time.sleep(3)
        return target.ask(INFER, target.image(), {**JSON, "timeout-ms": "60000"})[0]


def foreign_inference(target: Target) -> str:
    every = ({**JSON, **REBOUND}, FOREIGN)
    statuses = [target.ask(INFER, target.image(), headers)[0] for headers in every]
    return ", ".join([*statuses, target.ask("/v2/models/stats", None, REBOUND)[0]])


def idle_grpc_connections(target: Target) -> str:
    """1,300 connections to the gRPC port that send nothing; HTTP requests meanwhile."""
    with ExitStack() as stack:
        for _ in range(1300):
            stack.enter_context(socket.create_connection(target.grpc))
        time.sleep(3)  # until they are accepted
        return counted(Counter(target.ask("/v2")[0] for _ in range(20)))


def large_grpc_messages(target: Target) -> str:
    """60 messages of 15 MiB at a time, none of them for an image of that size."""
    request = message_classes()["ModelInferRequest"](model_name="images")
    request.inputs.add(name="input", datatype="UINT8", shape=target.shape)
    request.raw_input_contents.append(bytes(15 * MIB))
    return called(target, [request.SerializeToString()] * 60)


def malformed_grpc_messages(target: Target) -> str:
    before = target.log.stat().st_size
    statuses = called(target, [b"\xff" * 100] * 2000)
    return f"{statuses}, {(target.log.stat().st_size - before) // 1024} KiB of log"


def called(target: Target, messages: list[bytes]) -> str:
    """The statuses of calls that are made at the same time."""
    with grpc.insecure_channel("{}:{}".format(*target.grpc)) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        futures = [call.future(message, timeout=LONGEST_S) for message in messages]
        return counted(Counter(future.code().name for future in futures))


def texts(row: str) -> list[str]:
    """A batch of texts, 2 MB in all."""
    return [(row * TEXT_BYTES)[:TEXT_BYTES]] * BATCH


def abandoned_texts(target: Target) -> str:
    """40 requests with 2 MB of texts, whose clients leave as soon as all is sent."""
    return abandoned(target, texts("x "))


def abandoned_marks(target: Target) -> str:
    """The same with texts of combining marks only."""
    return abandoned(target, ["\u0300\u0316" * (TEXT_BYTES // 4)] * BATCH)


def abandoned(target: Target, data: list[str]) -> str:
    tensor = {"name": "input", "datatype": "BYTES", "shape": [BATCH], "data": data}
    parameters = {"timeout_ms": 60_000}
    body = json.dumps({"inputs": [tensor], "parameters": parameters}, ensure_ascii=False).encode()
    head = f"POST {TEXT_INFER} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(40):
        with target.connect() as connection:
            connection.sendall(request)
    return target.ask("/v2")[0]


def typed_texts(target: Target) -> str:
    """60 gRPC messages of 15 MiB at a time, with texts in the list of their type."""
    request = message_classes()["ModelInferRequest"](model_name="texts")
    tensor = request.inputs.add(name="input", datatype="BYTES", shape=[BATCH])
    tensor.contents.bytes_contents.extend([b"x " * (15 * MIB // 2 // BATCH)] * BATCH)
    return called(target, [request.SerializeToString()] * 60)


def removal(target: Target) -> str:
    body = json.dumps({"remove": "images"}).encode()
    return target.ask("/admin/tenants", body, JSON)[0]


BOTH = (INFER, FEEDBACK)
DAEMON_CASES: dict[str, Callable[[Target], str]] = {
    "JSON data of 500 strings, one of 1 MB": many_strings,
    "booleans as UINT8": booleans,
    "15 MiB of empty lists as data": empty_lists,
    "15 MiB of empty lists as a parameter": large_parameters,
    "endless header": endless_header,
    "endless trailer": endless_trailer,
    "1,100 clients that never read": slow_readers,
    "40 small inputs in bodies of 15 MiB": recent_inputs,
    "header with 5,000 digits": long_header,
    "timeout of 10**400": huge_timeout,
    "path with 5,000 digits": long_path,
    "Host that is no host": bad_host,
    "feedback: foreign Origin, rebound Host, no type": foreign_feedback,
    "best of the JSON scores": best_of_json,
    "body of 64 MiB, declared and chunked": oversized,
    "held: 1,100 idle connections": idle_connections,
    "held: 60 unfinished bodies of 15 MiB": unfinished_bodies,
    "held: 1,300 idle connections to the gRPC port": idle_grpc_connections,
    "held: 60 gRPC messages of 15 MiB": large_grpc_messages,
    "2,000 malformed gRPC messages": malformed_grpc_messages,
    "infer: rebound Host, foreign Origin; statistics: rebound Host": foreign_inference,
}
GATEWAY_CASES: dict[str, Callable[[Target], str]] = {
    "gateway: header with 5,000 digits": long_header,
    "gateway: endless header": endless_header,
    "gateway: feedback: foreign Origin, rebound Host, no type": foreign_feedback,
    "gateway: pages: foreign Origin, rebound Host": foreign_pages,
    "gateway: body of 64 MiB, declared and chunked": oversized,
}
TEXT_CASES: dict[str, Callable[[Target], str]] = {
    "texts: 40 abandoned requests of 2 MB": abandoned_texts,
    "texts: 40 abandoned requests of 2 MB of combining marks": abandoned_marks,
    "texts: 60 typed gRPC messages of 15 MiB": typed_texts,
}
LAST: dict[str, Callable[[Target], str]] = {"tenant removed on a standalone daemon": removal}


def counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{n} x {status}" if n > 1 else status for status, n in statuses.items())


class Health:
    """Checks all the time, in a process of its own."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.attack", "--watch", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._rows: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            begun_s, took_s = map(float, line.split())
            self._rows.append((begun_s, took_s))

    def slowest_ms(self, begun_s: float) -> float:
        """Of the checks that ended after that."""
        now_s = time.monotonic()
        while not self._rows or self._rows[-1][0] < now_s:  # the one under way counts too
            time.sleep(0.01)
        return 1e3 * max(took for begun, took in self._rows if begun + took >= begun_s)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def watch(port: int) -> None:
    """Print begin and seconds until healthy of one check after the other."""
    while True:
        begun_s = time.monotonic()
        while not is_healthy(port):
            time.sleep(0.01)
        print(begun_s, time.monotonic() - begun_s, flush=True)
        time.sleep(0.02)


def is_healthy(port: int) -> bool:
    request = b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), LONGEST_S) as connection:
        return answer(connection, request)[0] == "200"
    return False


@contextmanager
def gateway(folder: Path, url: str) -> Iterator[str]:
    """`migrator gateway` before the daemon, and where it listens."""
    homes = {"epoch": 1, "version": 1, "homes": {"images": url}, "away": {}, "pages": {"gpu": url}}
    (folder / "map.json").write_text(json.dumps(homes), encoding="utf-8")
    command = [sys.executable, "-m", "migrator", "gateway", "--port", "0"]
    command += ["--map", str(folder / "map.json")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("serving at "):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield line.removeprefix("serving at ").strip()
                return
        raise SystemExit("the gateway does not serve")
    finally:
        process.kill()
        process.wait()


def serving(
    folder: Path, tenant: Tenant
) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """A daemon with its usual limits."""
    return daemon(folder, tenant, connections=1024, options=("--grpc-port", "0"))


def text_tenant(folder: Path) -> Tenant:
    """A model of texts, and the samples that it learns from."""
    rows = [{"text": f"{name} {n}", "label": name} for name in ("good", "bad") for n in range(40)]
    samples = folder / "samples"
    samples.mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (samples / "train.jsonl").write_text(lines, encoding="utf-8")
    return Tenant("small-text", BATCH, 20.0, "texts", f"folder:{samples}")


def reset_peak(pid: int) -> None:
    """From now on the peak counts anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def attack(case: str, act: Callable[[Target], str], target: Target, pid: int) -> Result:
    """One attack while health is checked."""
    health = Health(target.port)
    try:
        health.slowest_ms(0.0)
        reset_peak(pid)
        before_mib, begun_s = memory_mib(pid), time.monotonic()
        status = act(target)
        seconds = time.monotonic() - begun_s
        slowest_ms = health.slowest_ms(begun_s)
        time.sleep(SETTLE_S)
        after_mib, peak_mib = memory_mib(pid), memory_mib(pid, "VmHWM:")
    finally:
        health.close()
    figures = (seconds, slowest_ms, before_mib, peak_mib, after_mib)
    return Result(case, status, *(round(figure, 1) for figure in figures))


def measured(folder: Path, only: str) -> list[Result]:
    """All attacks, the one that may end the tenant last."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    results = []
    chosen = [
        [(case, act) for case, act in cases.items() if only in case]
        for cases in (DAEMON_CASES, GATEWAY_CASES, LAST, TEXT_CASES)
    ]
    of_daemon, of_gateway, last, of_texts = chosen
    if of_daemon or of_gateway or last:
        tenant = Tenant("small-cnn", 8, 20.0)
        with serving(folder, tenant) as (process, url), gateway(folder, url) as by:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
            here, before = (Target(address, folder / "serve.log") for address in (url, by))
            for cases, target in ((of_daemon, here), (of_gateway, before), (last, here)):
                results += attacks(cases, target, process.pid)
            resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))
    if of_texts:
        below = folder / "texts"
        below.mkdir()
        with serving(below, text_tenant(below)) as (process, url):
            results += attacks(of_texts, Target(url, below / "serve.log", "texts"), process.pid)
    return results


def attacks(
    cases: list[tuple[str, Callable[[Target], str]]], target: Target, pid: int
) -> list[Result]:
    results = []
    for case, act in cases:
        results.append(attack(case, act, target, pid))
        print(shown(results[-1]), flush=True)
    return results


def shown(row: Result) -> str:
    """A row."""
    memory = f"{row.rss_before_mib:.0f} -> {row.rss_peak_mib:.0f} -> {row.rss_after_mib:.0f} MiB"
    times = f"{row.seconds:6.1f} s, health {row.slowest_health_ms:8.1f} ms"
    return f"{row.case:56} {row.status:40} {times}, {memory}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for attack.json")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--watch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        watch(options.watch)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))  # inherited, as usual
    with tempfile.TemporaryDirectory() as folder:
        results = measured(Path(folder), options.only)
    if options.out:
        record = {"machine": describe_machine(), "cases": [asdict(result) for result in results]}
        text = json.dumps(record, indent=1) + "\n"
        (options.out / "attack.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
