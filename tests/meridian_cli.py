"""Calls the `meridian` program as a person would."""

from __future__ import annotations

import io
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Outcome:
    """What a finished call left: exit status (negative: the signal that ended it), both outputs."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8")

    @property
    def complaint(self) -> str:
        """What the program says went wrong: standard error without progress lines' carriage returns."""
        return self.stderr.replace("\r", "\n").strip()


class Failed(AssertionError):
    """A call that should have worked did not."""


class Meridian:
    """The program at one path."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary

    def start(
        self, *arguments: object, env: dict[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """Starts a call and does not wait for it."""
        environment = {name: value for name, value in os.environ.items() if name != "MERIDIAN_FAULT"}
        environment.update(env or {})
        command = [str(self.binary), *(str(argument) for argument in arguments)]
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options
        )

    def run(self, *arguments: object, stdin: str = "", env: dict[str, str] | None = None, **options: object) -> Outcome:
        """Runs a call to its end, however it ends."""
        process = self.start(*arguments, env=env, **options)
        try:
            stdout, stderr = process.communicate(stdin.encode("utf-8"), timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Outcome(process.returncode, stdout, stderr.decode("utf-8", "replace"))

    def must(self, *arguments: object, stdin: str = "") -> Outcome:
        """Runs a call that has to succeed."""
        outcome = self.run(*arguments, stdin=stdin)
        if outcome.status != 0:
            raise Failed(f"meridian {' '.join(map(str, arguments))} ended with {outcome.status}:\n{outcome.complaint}")
        return outcome

    def load(self, data: Path, db: str, table: str, *files: Path, **options: object) -> Outcome:
        """Loads a table; an option `sub_stripes=3` becomes `--sub-stripes 3`, `replace=True` becomes `--replace`."""
        return self.must(*load_arguments(data, db, table, *files, **options))

    def sql(self, data: Path, db: str, query: str) -> pa.Table:
        """The answer to a query, which is in the dialect that is nearest to DuckDB's: names in double quotes."""
        outcome = self.must("sql", "--data", data, "--db", db, "--dialect", "adql", "--format", "arrow", query)
        return read_arrow(outcome.stdout)

    def rows(self, data: Path, db: str, query: str) -> list[tuple[object, ...]]:
        """The rows of the answer to a query."""
        return rows_of(self.sql(data, db, query))


def load_arguments(data: Path, db: str, table: str, *files: Path, **options: object) -> list[object]:
    """The arguments of `meridian load`."""
    arguments: list[object] = ["load", "--data", data, "--db", db, "--table", table]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        arguments += [flag] if value is True else [flag, value]
    return [*arguments, *files]


def read_arrow(content: bytes) -> pa.Table:
    """Reads an Arrow IPC file or stream."""
    if content.startswith(b"ARROW1"):
        return pa.ipc.open_file(io.BytesIO(content)).read_all()
    return pa.ipc.open_stream(io.BytesIO(content)).read_all()


def rows_of(answer: pa.Table) -> list[tuple[object, ...]]:
    """The rows of a table; columns may share a name."""
    return list(zip(*(column.to_pylist() for column in answer.columns)))
