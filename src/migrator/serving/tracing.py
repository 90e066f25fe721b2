"""Whether this process traces requests: OpenTelemetry's environment variables decide.

Nothing of OpenTelemetry is imported before `OTEL_TRACES_EXPORTER` names an exporter.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.serving.spans import Tracing

HEADERS = ("traceparent", "tracestate")
"""In which the W3C's trace context comes and goes."""


def exporters() -> list[str]:
    """The exporters that the environment names; empty: nothing is traced."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    names = [name.strip() for name in os.environ.get("OTEL_TRACES_EXPORTER", "").split(",")]
    return [name for name in names if name not in ("", "none")]


def open_tracing(service: str) -> Tracing | None:
    """Tracing as the environment configures it; None: off, which is the default.

    `service`: the name of this process in traces, unless `OTEL_SERVICE_NAME` is set.
    """
    names = exporters()
    if not names:
        return None
    try:
        spans = import_module("migrator.serving.spans")
    except ModuleNotFoundError as error:
        raise InputError(
            f"OTEL_TRACES_EXPORTER: {error.name} is not installed; pip install "
            "'migrator-gpu[otel]', or unset the variable"
        ) from error
    tracing: Tracing = spans.exporting(service, names)
    return tracing
