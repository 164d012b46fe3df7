"""Asks Meridian in ADQL, by the Table Access Protocol, and reads its VOTables: the default format, whose BINARY2 has all bits of a number and
tells an empty text from NULL."""

from __future__ import annotations

import base64
import datetime
import html
import http.client
import re
import struct
from contextlib import suppress
from urllib.parse import urlencode
from xml.etree import ElementTree

SPACE = "{http://www.ivoa.net/xml/VOTable/v1.3}"
NUMBERS = {"unsignedByte": ">B", "short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
# How an error is told that came after the first rows: its status was sent before.
AFTER_ROWS = 200
BROKEN = 0


class TapError(Exception):
    """An error: its status (`AFTER_ROWS` for one that came with rows, `BROKEN` if the connection broke), and its sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class Tap:
    """A server's TAP service. Each statement has a connection of its own: a server closes those that are idle for long."""

    def __init__(self, port: int, seconds: float, user: str = "", password: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
        self.headers = {"Content-Type": "application/x-www-form-urlencoded", "Connection": "close"}
        if user:
            self.headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    def execute(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a statement."""
        form = urlencode({"REQUEST": "doQuery", "LANG": "ADQL", "FORMAT": "votable", "QUERY": text})
        try:
            self.connection.request("POST", "/tap/sync", form, self.headers)
            response = self.connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TapError(BROKEN, f"{type(error).__name__}: {error}") from None
        said = re.search(rb'<INFO name="QUERY_STATUS" value="(ERROR|OVERFLOW)"\s*(?:/>|>(.*?)</INFO>)', body, re.DOTALL)
        if said or response.status != 200:
            sentence = (said[2] or said[1]) if said else body[:500]
            status = AFTER_ROWS if response.status == 200 else response.status
            raise TapError(status, html.unescape(sentence.decode("utf-8", "replace")))
        return rows_of(body)

    def close(self) -> None:
        """Ends the connection; the next statement makes another."""
        with suppress(OSError):
            self.connection.close()


def rows_of(document: bytes) -> list[tuple[object, ...]]:
    """The rows of a VOTable of BINARY2."""
    table = ElementTree.fromstring(document).find(f"{SPACE}RESOURCE/{SPACE}TABLE")
    assert table is not None, document[:500]
    fields = [dict(field.attrib) for field in table.findall(f"{SPACE}FIELD")]
    stream = table.find(f"{SPACE}DATA/{SPACE}BINARY2/{SPACE}STREAM")
    content = base64.b64decode("".join((stream.text or "").split())) if stream is not None else b""
    flags, place, rows = (len(fields) + 7) // 8, 0, []
    while place < len(content):
        nulls, place = content[place : place + flags], place + flags
        row = []
        for at, field in enumerate(fields):
            value, place = value_at(content, place, field)
            is_null = nulls[at // 8] & (128 >> at % 8)
            row.append(None if is_null else value)
        rows.append(tuple(row))
    return rows


def value_at(content: bytes, place: int, field: dict[str, str]) -> tuple[object, int]:
    """The value of a field that begins at a byte, and where the next one begins."""
    kind = field["datatype"]
    if kind in NUMBERS:
        assert "arraysize" not in field, field
        (value,) = struct.unpack_from(NUMBERS[kind], content, place)
        return value, place + struct.calcsize(NUMBERS[kind])
    if kind == "boolean":
        return {84: True, 70: False}.get(content[place]), place + 1
    (length,) = struct.unpack_from(">i", content, place)
    place += 4
    if kind == "unicodeChar":
        end = place + 2 * length
        return content[place:end].decode("utf-16-be"), end
    assert kind == "char", field
    end = place + length
    return plain_text(content[place:end].decode("ascii"), field), end


def plain_text(text: str, field: dict[str, str]) -> object:
    """A time; or a number that VOTable has no type for, which are all texts of ASCII alone: texts of tables are of Unicode."""
    if field.get("xtype") == "timestamp" and text:
        read = datetime.date if len(text) == 10 else datetime.datetime
        return read.fromisoformat(text)
    return int(text) if re.fullmatch(r"-?\d+", text) else text
