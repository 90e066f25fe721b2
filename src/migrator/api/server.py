"""`migrator.serve`: the live system in a process of its own."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from migrator.core.errors import InputError, MigratorError
from migrator.io.http_client import request
from migrator.io.tls import trusting

_LOOK_S = 0.05
_DRAIN_S = 120.0
_ANSWER_S = 30.0


class Server:
    """A running `migrator serve`. Leaving the `with` block drains and stops it."""

    def __init__(
        self, arguments: list[str], start_s: float, token: str | None, context: ssl.SSLContext
    ) -> None:
        self._arguments, self._start_s, self._token = arguments, start_s, token
        self._context = context
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.url = ""
        """Address of the API, while it serves."""
        self.grpc_address: str | None = None
        """Address of the API over gRPC; None without one."""

    def __enter__(self) -> Server:
        self._log = tempfile.NamedTemporaryFile(prefix="migrator-serve-", suffix=".log")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "migrator", "serve", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C in a notebook is for its own process
        )
        try:
            self.url = self._wait_until_serving(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """What the process has logged so far."""
        return "" if self._log is None else Path(self._log.name).read_text("utf-8", "replace")

    def status(self) -> dict[str, Any]:
        """The tenants, their instances and counts, as `GET /admin/status` returns them."""
        return self.call("GET", "/admin/status")

    def infer(self, tenant: str, data: Any, *, request_id: str = "") -> dict[str, Any]:
        """Send one batch to a tenant's model; returns the answer.

        `data`: an array or nested lists, or texts for a model that reads them.
        """
        model = self.call("GET", f"/v2/models/{tenant}")
        values = data.tolist() if hasattr(data, "tolist") else data
        values = [values] if isinstance(values, str) else values
        shape, flat = _shape(values), _flat(values)
        entry = {**model["inputs"][0], "shape": shape, "data": flat}
        if flat and all(isinstance(value, str) for value in flat):
            entry["datatype"] = "BYTES"
        body = {"inputs": [entry], **({"id": request_id} if request_id else {})}
        return self.call("POST", f"/v2/models/{tenant}/infer", body)

    def feedback(self, tenant: str, request_id: str, label: int | str) -> dict[str, Any]:
        """Tell the true class of an earlier request, by its name or number, for the next
        retraining."""
        body = {"id": request_id, "label": label if isinstance(label, str) else int(label)}
        return self.call("POST", f"/v2/models/{tenant}/feedback", body)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request to the API; MigratorError with its message if it is refused."""
        reply = request(
            *(self.url, method, path),
            timeout_s=_ANSWER_S,
            body=body,
            token=self._token,
            context=self._context,
        )
        answer = reply.json_object()
        if reply.status != 200 or answer is None:
            why = (answer or {}).get("error", f"status {reply.status}")
            raise MigratorError(f"{path}: {why}")
        return dict(answer)

    def stop(self) -> None:
        """Drain, stop the process and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_DRAIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
        self._log, self.url = None, ""

    def _wait_until_serving(self, process: subprocess.Popen[bytes]) -> str:
        until_s = time.monotonic() + self._start_s
        while time.monotonic() < until_s:
            ended = process.poll() is not None  # before the log is read: its last line counts
            log = self.log
            match = re.search(r"^serving at (\S+)$", log, re.MULTILINE)
            if match:
                beside = re.search(r"^gRPC at (\S+)$", log, re.MULTILINE)
                self.grpc_address = beside[1] if beside else None
                return match[1]
            if ended:
                errors = re.findall(r"^error: (.*)$", log, re.MULTILINE)
                why = (
                    errors[-1]
                    if errors
                    else log.strip()[-500:] or f"exit code {process.returncode}"
                )
                raise (InputError if process.returncode == 2 else MigratorError)(why)
            time.sleep(_LOOK_S)
        last = self.log.strip()[-300:]
        raise MigratorError(f"serve: it did not serve within {self._start_s:g} s ({last})")

    def __repr__(self) -> str:
        return f"<Server at {self.url}>" if self.url else "<Server, not running>"


def serve(
    scenario: str | Path | None = None,
    *,
    model: str | None = None,
    data: str | Path | None = None,
    policy: str | None = None,
    driver: str = "emulated",
    gpu: int = 0,
    port: int = 0,
    state: str | Path | None = None,
    grpc_port: int | None = None,
    windows: int | None = None,
    start_s: float = 300.0,
    token: str | None = None,
    ca: str | Path | None = None,
) -> Server:
    """Serve and retrain the models of a live scenario; use it as `with migrator.serve(...) as s:`.

    `model`, `data`: one model and its labelled samples, in place of a scenario.

    `port`, `grpc_port`: 0 takes any free port; None is none. `policy`: name or import path.
    `start_s`: the longest time to wait for the models. `token`: the administration token, if the
    scenario asks for tokens. `ca`: with `live.tls`, the CAs in PEM to verify its certificate with.
    """
    options = {"--driver": driver, "--gpu": gpu, "--port": port}
    options |= {"--policy": policy, "--state": state, "--windows": windows}
    options |= {"--grpc-port": grpc_port, "--model": model, "--data": data}
    arguments = [f"{key}={value}" for key, value in options.items() if value is not None]
    context = trusting(None if ca is None else Path(ca))
    named = () if scenario is None else (str(scenario),)
    return Server([*named, *arguments], start_s, token, context)


def _shape(values: Any) -> list[int]:
    return [len(values), *_shape(values[0])] if isinstance(values, list) and values else []


def _flat(values: Any) -> list[Any]:
    return (
        [leaf for value in values for leaf in _flat(value)]
        if isinstance(values, list)
        else [values]
    )
