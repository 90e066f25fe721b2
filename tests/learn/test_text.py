"""Texts as numbers, and messages without what gives their group away."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from migrator.learn.text import BEGIN, NOTHING, TOKENS, VOCABULARY, body_of, tokens_of

MESSAGE = """From: somebody@example.org (A Name)
Subject: hockey

In article <1@x> someone else writes:
> they said something about hockey
And this is what I say.
It has two lines.

--
A Name, signature
"""


def test_header_quotes_and_signature_are_removed() -> None:
    assert body_of(MESSAGE).split("\n") == ["And this is what I say.", "It has two lines.", ""]


def test_a_message_that_is_all_signature_keeps_its_words() -> None:
    assert body_of("Subject: x\n\none line only") == "one line only"
    assert body_of("no header at all") == ""


def test_the_same_word_has_the_same_number_whatever_its_case() -> None:
    first, second = tokens_of("Puck, puck?"), tokens_of("puck")
    assert first[0] == BEGIN
    assert first[1] == first[2] == second[1]
    assert second[2] == NOTHING


@given(st.text(max_size=2000))
def test_any_text_is_a_row_of_the_vocabulary(text: str) -> None:
    row = tokens_of(text)
    assert row.shape == (TOKENS,)
    assert row.dtype == np.int32
    assert row.min() >= 0
    assert row.max() < VOCABULARY
