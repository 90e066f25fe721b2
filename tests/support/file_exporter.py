"""An exporter of spans as users install them: each as a line of JSON in the file SPANS_FILE."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class FileExporter(SpanExporter):
    """Appends to the file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ["SPANS_FILE"]).open("a", encoding="utf-8") as file:
            file.writelines(f"{span.to_json(indent=None)}\n" for span in spans)
        return SpanExportResult.SUCCESS


def installed(folder: Path) -> str:
    """A folder for PYTHONPATH that offers it as the exporter `file`."""
    about = folder / "file_exporter-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: file-exporter\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        "[opentelemetry_traces_exporter]\nfile = support.file_exporter:FileExporter\n",
        encoding="utf-8",
    )
    return str(folder)


def exported(path: Path) -> list[dict[str, Any]]:
    """The spans in a file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
