"""Asks Meridian and MariaDB the same and says how their answers differ: headings, types, rows.

Meridian answers from one process. Rows are compared as multisets; doubles agree to `ROUNDING`, values of FLOAT columns to
the six digits in which MariaDB's protocol gives them, exact decimals to the digits that MariaDB gives.
"""

from __future__ import annotations

import datetime
import decimal
import math
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from comparison import Tolerance, difference, normalised
from meridian_cli import Meridian, rows_of
from testbed.differences import KNOWN_TYPES
from testbed.mariadb import QueryResult, MariaDB, Rejected
from testbed.scisql import for_mariadb

ROUNDING = Tolerance(relative=1e-9, absolute=1e-300)
# What the protocol's text of a FLOAT column keeps.
FLOAT_DIGITS = 6
LONGEST_SECONDS = 120

INTEGER_CODES = {1, 2, 3, 8, 9, 13}
DECIMAL_CODES = {0, 246}
TEXT_CODES = {15, 247, 248, 249, 250, 251, 252, 253, 254}
OTHER_CODES = {4: "float", 5: "double", 6: "null", 7: "datetime", 10: "date", 11: "time", 12: "datetime", 16: "bit"}


def mariadb_type(code: int, binary: bool) -> str:
    """The kind of a column's values, from the client protocol's number of its type."""
    if code in INTEGER_CODES:
        return "integer"
    if code in DECIMAL_CODES:
        return "decimal"
    if code in TEXT_CODES:
        return "bytes" if binary else "text"
    return OTHER_CODES[code]


ARROW_KINDS = (
    (pa.types.is_boolean, "integer"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_decimal, "decimal"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_time, "time"),
    (pa.types.is_null, "null"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_string_view, "text"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_binary_view, "bytes"),
)


def arrow_type(kind: pa.DataType) -> str:
    """The kind of a column's values, from its Arrow type."""
    return next((name for test, name in ARROW_KINDS if test(kind)), str(kind))


def arrow_kind(field: pa.Field) -> str:
    """The kind of a column's values, from its field: times of day are texts that say what they are."""
    return "time" if b"meridian.time" in (field.metadata or {}) else arrow_type(field.type)


class Complaint(Exception):
    """Meridian did not answer: what it said."""


class AnswerPipe:
    """The program's output as Arrow reads it: an answer ends with a mark, without which it was cut off."""

    closed = False
    END = b"\xff\xff\xff\xff\x00\x00\x00\x00"

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe = pipe
        self.last = b""

    def read(self, size: int) -> bytes:
        """Reads `size` bytes, fewer only at the end."""
        parts = []
        while size > 0 and (part := self.pipe.read(size)):
            parts.append(part)
            size -= len(part)
        whole = b"".join(parts)
        self.last = (self.last + whole)[-len(self.END) :]
        return whole

    def close(self) -> None:
        """The next answer comes through the same pipe."""

    @property
    def is_whole(self) -> bool:
        """Whether the answer was read to its end."""
        return self.last == self.END


class Asker:
    """One `meridian sql` that answers statement after statement; started again where it ended with an error."""

    def __init__(self, meridian: Meridian, data: Path, db: str, *options: object) -> None:
        self.meridian = meridian
        self.command = ("sql", "--data", data, "--db", db, "--format", "arrow", "--quiet", *options)
        self.process: subprocess.Popen[bytes] | None = None
        self.said: list[str] = []
        self.listener: threading.Thread | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        """Starts the process, and a thread that takes what it says besides its answers: nobody else reads that."""
        process = self.meridian.start(*self.command)
        assert process.stderr is not None
        self.said = []
        self.listener = threading.Thread(target=self._listen, args=(process.stderr, self.said), daemon=True)
        self.listener.start()
        return process

    @staticmethod
    def _listen(pipe: IO[bytes], said: list[str]) -> None:
        """Keeps all lines but warnings, which are of statements that were answered."""
        for line in pipe:
            text = line.decode("utf-8", "replace")
            if not text.startswith("meridian: warning "):
                said.append(text)

    def execute(self, statement: str) -> pa.Table:
        """The answer to a statement."""
        if self.process is None:
            self.process = self._start()
        assert self.process.stdin is not None and self.process.stdout is not None
        pipe = AnswerPipe(self.process.stdout)
        try:
            self.process.stdin.write(f"{statement}\n;\n".encode())
            self.process.stdin.flush()
            answer = pa.ipc.open_stream(pipe).read_all()
        except (OSError, pa.ArrowException):
            raise self._complaint() from None
        if not pipe.is_whole:
            raise self._complaint()
        return answer

    def _complaint(self) -> Complaint:
        """What the process said when it ended."""
        process, self.process = self.process, None
        assert process is not None and self.listener is not None
        status = process.wait(timeout=LONGEST_SECONDS)
        self.listener.join(timeout=LONGEST_SECONDS)
        said = "".join(self.said).strip()
        return Complaint(f"{said} (status {status})")

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(timeout=LONGEST_SECONDS)
            self.process = None


@dataclass
class Sides:
    """The two databases with the same rows."""

    asker: Asker
    mariadb: MariaDB
    database: str

    def difference(self, statement: str, reference: str | None = None, ordered: bool = False) -> str | None:
        """How the answers to a statement differ; MariaDB is asked `reference` where its form must be another."""
        self.mariadb.do(f"USE `{self.database}`")
        expected = self.mariadb.execute(for_mariadb(statement if reference is None else reference))
        answer = self.asker.execute(statement)
        return self.compare(answer, expected, ordered)

    def rejection(self, statement: str) -> tuple[str | None, str | None]:
        """What each of the two said where it rejected a statement: Meridian, then MariaDB."""
        self.mariadb.do(f"USE `{self.database}`")
        theirs = ours = None
        try:
            self.mariadb.execute(for_mariadb(statement))
        except Rejected as rejected:
            theirs = str(rejected)
        try:
            self.asker.execute(statement)
        except Complaint as complaint:
            ours = str(complaint)
        return ours, theirs

    def compare(self, answer: pa.Table, expected: QueryResult, ordered: bool = False) -> str | None:
        """How an answer of Meridian differs from MariaDB's."""
        return (
            headings_differ(answer, expected)
            or types_differ(answer, expected)
            or rows_differ(answer, expected, ordered)
        )


def headings_differ(answer: pa.Table, expected: QueryResult) -> str | None:
    """Says which headings differ."""
    theirs = [column.name for column in expected.columns]
    if answer.column_names == theirs:
        return None
    return f"Meridian's columns are headed {answer.column_names}, MariaDB's {theirs}."


def types_differ(answer: pa.Table, expected: QueryResult) -> str | None:
    """Says which types differ but for the known differences."""
    for at, column in enumerate(expected.columns):
        ours = arrow_kind(answer.schema.field(at))
        theirs = mariadb_type(column.type_code, column.binary)
        if ours != theirs and (ours, theirs) not in KNOWN_TYPES:
            return f"The type of column {column.name!r} is {ours} in Meridian, {theirs} in MariaDB."
    return None


def rows_differ(answer: pa.Table, expected: QueryResult, ordered: bool) -> str | None:
    """Says which rows differ beyond rounding."""
    digits = [significant_digits(column.type_code) for column in expected.columns]
    bits = [OTHER_CODES.get(column.type_code) == "bit" for column in expected.columns]
    ours = [tuple(map(comparable, row, digits)) for row in rows_of(answer)]
    theirs = [tuple(map(comparable, map(bits_number, row, bits), digits)) for row in expected.rows]
    return difference(ours, theirs, ROUNDING, ordered)


def bits_number(value: object, is_bits: bool) -> object:
    """The number that the bytes of a BIT are."""
    return int.from_bytes(value, "big") if is_bits and isinstance(value, bytes) else value


def significant_digits(code: int) -> int | None:
    """How many digits of a column's values are compared; all if None."""
    return FLOAT_DIGITS if OTHER_CODES.get(code) == "float" else None


def span_text(span: datetime.timedelta) -> str:
    """A TIME as MySQL writes it, with a fraction where there is one."""
    micros = abs(span) // datetime.timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    sign = "-" if span < datetime.timedelta(0) else ""
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}" if fraction else text


def comparable(value: object, digits: int | None) -> object:
    """A value as either side may give it, in one form."""
    if isinstance(value, datetime.timedelta):
        return span_text(value)
    if isinstance(value, decimal.Decimal):
        value = float(value) if value != value.to_integral_value() else int(value)
    if isinstance(value, float) and digits is not None and math.isfinite(value):
        return float(f"{value:.{digits - 1}e}")
    return normalised(value)
