"""What a good rejection looks like: an exit status, one clear sentence, no entrails."""

from __future__ import annotations

import re

from meridian_cli import Outcome

PANIC_STATUS = 101
ENTRAILS = (
    "panicked",
    "backtrace",
    "RUST_BACKTRACE",
    "Some(",
    "None)",
    "Err(",
    "Error {",
    "DataFusionError",
    "SchemaError",
    "ParserError",
    "VortexError",
    "ArrowError",
    "Internal error",
    "bug in DataFusion",
    ".rs:",
    "SQLx",
)
LONGEST_SENTENCE = 700


def assert_rejected(outcome: Outcome, *words: str) -> str:
    """Checks that a call was rejected in a clear sentence that has all of `words`; gives the sentence."""
    said = outcome.complaint
    assert outcome.status != 0, f"it should have been rejected, but ended well:\n{outcome.text}\n{said}"
    assert 0 < outcome.status < PANIC_STATUS, f"ended with {outcome.status}:\n{said}"
    sentence = assert_clear(said)
    for word in words:
        assert word.lower() in sentence.lower(), f"{word!r} is not in: {sentence}"
    return sentence


def assert_clear(said: str) -> str:
    """Checks that what the program said is a clear sentence; gives it."""
    for dump in ENTRAILS:
        assert dump not in said, f"shows its entrails ({dump}):\n{said}"
    assert "meridian: " in said, f"does not say who speaks:\n{said}"
    sentence = said[said.index("meridian: ") + len("meridian: ") :]
    assert len(sentence) <= LONGEST_SENTENCE, f"too long:\n{sentence}"
    return sentence


def points_at(sentence: str, name: str) -> bool:
    """Whether an error about a statement shows where: a line or column number, or a caret below the text."""
    return name in sentence and re.search(r"line \d+|column \d+|\^", sentence, re.IGNORECASE) is not None
