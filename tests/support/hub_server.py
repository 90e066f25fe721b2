"""A server with the part of the hub's interface that downloads use."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """Repositories by name: the files of every commit, and the commit of `main`."""

    commits: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    main: dict[str, str] = field(default_factory=dict)
    url: str = ""

    def push(self, name: str, files: dict[str, bytes]) -> str:
        """Add a commit to main; its number."""
        kept = self.commits.setdefault(name, {})
        commit = hashlib.sha1(f"{name}{len(kept)}".encode()).hexdigest()
        kept[commit] = files
        self.main[name] = commit
        return commit


@contextmanager
def serve_hub(hub: Hub) -> Iterator[None]:
    """Serve it at a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _answer(self, *, with_body: bool) -> None:
            status, headers, body = _respond(hub, unquote(urlsplit(self.path).path))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Response = tuple[int, dict[str, str], bytes]


def _respond(hub: Hub, path: str) -> Response:
    """The description of a commit, the list of its files, or one of them."""
    address = re.fullmatch(r"(?:/api/models)?/(\S+?)/(revision|tree|resolve)/([^/]+)/?(.*)", path)
    if address is None or address[1] not in hub.commits:
        return 404, {"X-Error-Code": "RepoNotFound"}, b""
    name, kind, revision, file = address.groups()
    commit = hub.main[name] if revision == "main" else revision
    files = hub.commits[name].get(commit)
    if files is None:
        return 404, {"X-Error-Code": "RevisionNotFound"}, b""
    if kind == "revision":
        about = {"id": name, "sha": commit, "siblings": [{"rfilename": file} for file in files]}
        return 200, {"Content-Type": "application/json"}, json.dumps(about).encode()
    if kind == "tree":
        rows = [
            {"type": "file", "path": file, "size": len(body), "oid": _digest(body)}
            for file, body in files.items()
        ]
        return 200, {"Content-Type": "application/json"}, json.dumps(rows).encode()
    if file not in files:
        return 404, {"X-Error-Code": "EntryNotFound"}, b""
    tag = f'"{_digest(files[file])}"'
    return 200, {"X-Repo-Commit": commit, "ETag": tag}, files[file]


def _digest(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()
