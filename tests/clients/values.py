"""Values as the client programs write and read them: as texts, so that JSON keeps every digit."""

from __future__ import annotations

import datetime


def write(value: object) -> str | None:
    """A value as text; bytes as hexadecimal digits."""
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def bind(parameter: dict[str, str | None]) -> object:
    """The value of a parameter, which has a kind and a text."""
    kind, text = parameter["kind"], parameter["text"]
    if text is None:
        return None
    makers = {
        "integer": int,
        "double": float,
        "boolean": lambda text: text == "1",
        "bytes": bytes.fromhex,
        "moment": datetime.datetime.fromisoformat,
    }
    return makers.get(kind or "", str)(text)
