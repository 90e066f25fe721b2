"""A page as a test sees it: what a browser would fetch, scripts, words and elements."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

_VOID = {"meta", "br", "img", "link", "input", "hr"}


class ParsedPage(HTMLParser):
    """Reads a page and checks on the way that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag == "script":
            self.scripts.append("")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif self._open and self._open[-1] != "style":
            self.words += data

    @property
    def addresses(self) -> list[str]:
        """Everything that leads or is fetched from somewhere."""
        keys = ("src", "href", "action", "poster", "data")
        return [
            value
            for _, attributes in self.elements
            for key, value in attributes.items()
            if key in keys
        ]

    @property
    def tags(self) -> Counter[str]:
        """How many elements of each kind."""
        return Counter(tag for tag, _ in self.elements)

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every `tag`."""
        return [attributes for name, attributes in self.elements if name == tag]
