"""Texts as numbers, and messages without what gives their group away."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.learn.benchmarks.newsgroups import body_of
from migrator.learn.tokens import CHARACTERS, PADDING, TOKENS, VOCABULARY, tokens_of

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
    assert body_of(MESSAGE).split("\n") == ["And this is what I say.", "It has two lines."]


def test_a_message_that_is_all_signature_keeps_its_words() -> None:
    assert body_of("Subject: x\n\n--\none line only") == "--\none line only"
    assert body_of("no header at all") == "no header at all"
    assert body_of("Subject: a header and nothing else") == ""


@pytest.mark.parametrize(
    "quoted",
    [
        "> their words",
        ">their words",
        "   JD> their words",
        "| their words",
        ": their words",
        "In article <1@x.org>, somebody@x.org (A Name) writes:",
        "In article <1@x.org>, somebody@x.org\n(A Name) writes:\n> their words",
        "A Name says:\n> their words",
    ],
)
def test_what_others_said_is_removed(quoted: str) -> None:
    assert body_of(f"Subject: x\n\nmine\n{quoted}\nmine too") == "mine\nmine too"


def test_words_are_of_every_alphabet_in_every_spelling() -> None:
    tokens = tokens_of("Größe GRÖSSE größe")
    assert tokens[1] == tokens[2] == tokens[3]
    assert tokens_of("слово")[1] != tokens_of("другое")[1]
    assert tokens_of("слово")[2] == PADDING
    # one letter or a letter and its accent; wide letters and digits
    assert tokens_of("cafe\u0301")[1] == tokens_of("café")[1]
    assert (
        tokens_of("\N{FULLWIDTH LATIN SMALL LETTER W}ide \N{FULLWIDTH DIGIT ONE}2")
        == tokens_of("wide 12")
    ).all()


@given(st.text(max_size=2000))
def test_any_text_is_a_row_of_the_vocabulary(text: str) -> None:
    row = tokens_of(text)
    assert row.shape == (TOKENS,)
    assert row.dtype == np.int32
    assert row.min() >= 0
    assert row.max() < VOCABULARY


def test_combining_marks_take_no_quadratic_time() -> None:
    """Normalized in one piece they take nine seconds, and hold the interpreter's lock."""
    begun_s = time.thread_time()
    tokens_of("a" + "\u0300\u0316" * (CHARACTERS * TOKENS // 2))
    assert time.thread_time() - begun_s < 2.0
