"""GET /docs: the OpenAPI description as one plain page that fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f4f4;padding:.7rem;"
    "overflow:auto}h2{margin-top:2rem;font-size:1.05rem}td{padding:0 1rem 0 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}pre{background:#222}}"
)


def docs_page(described: dict[str, Any]) -> str:
    """The page."""
    info = described["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])}</p>",
        *_operations(described["paths"]),
        "<h1>Messages</h1>",
        *_messages(described["components"]["schemas"]),
        "</body></html>",
    ]
    return "\n".join(parts)


def _operations(paths: dict[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, each in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(each['summary'])}</p>"
            if "requestBody" in each:
                yield f"<p>Takes {_message(each['requestBody'])}.</p>"
            rows = (
                f"<tr><td>{status}</td><td>{escape(answer['description'])}</td>"
                f"<td>{_message(answer)}</td></tr>"
                for status, answer in each["responses"].items()
            )
            yield f"<table>{''.join(rows)}</table>"


def _message(described: dict[str, Any]) -> str:
    kind, content = next(iter(described["content"].items()))
    schema = content["schema"]
    name = schema.get("$ref", schema.get("items", {}).get("$ref", "")).rpartition("/")[2]
    return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else escape(kind)


def _messages(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        yield f'<h2 id="{escape(name)}">{escape(name)}</h2>'
        yield f"<p>{escape(schema.get('description', ''))}</p>"
        properties = json.dumps(schema.get("properties", {}), indent=1)
        yield f"<pre>{escape(properties)}</pre>"
