"""Meridian: `meridian load` for each table, then one `meridian sql` process that answers statement after statement."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa

from ..catalogue import TableFiles
from ..memory import high_water
from .base import Contender, Refused

DATABASE = "bench"


# What a pipe holds, and with it a short answer.
AT_ONCE = 1 << 16
# The last bytes of an Arrow stream.
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def read_answer(pipe: IO[bytes]) -> pa.Table:
    """Reads one answer: a short one out of the block in which it comes, a long one as it comes."""
    first = os.read(pipe.fileno(), AT_ONCE)
    if first.endswith(END):
        try:
            return pa.ipc.open_stream(first).read_all()
        except pa.ArrowInvalid:
            # Numbers that look like an end.
            pass
    return pa.ipc.open_stream(AnswerPipe(first, pipe)).read_all()


class AnswerPipe:
    """The pipe from the program as Arrow reads it: each read gives all that was asked for, and nothing closes it."""

    closed = False

    def __init__(self, first: bytes, pipe: IO[bytes]) -> None:
        self.first = first
        self.pipe = pipe

    def read(self, size: int) -> bytes:
        """Reads `size` bytes, fewer only at the end."""
        parts = []
        if self.first:
            parts.append(self.first[:size])
            self.first = self.first[size:]
            size -= len(parts[0])
        while size > 0 and (part := self.pipe.read(size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """The next answer comes through the same pipe."""


class Meridian(Contender):
    """The program under test."""

    process: subprocess.Popen[bytes] | None = None
    # Of `meridian load`, besides its defaults.
    load_options: Sequence[str] = ()

    def version(self) -> str:
        return self._run("--version").split()[-1]

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([str(self.setup.program), *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout

    def load(self, table: TableFiles) -> int | None:
        command = [str(self.setup.program), "load", "--data", str(self.home), "--db", DATABASE, "--table", table.name]
        command += ["--key", table.key, "--ra", table.ra, "--dec", table.dec]
        command += ["--director", table.director] if table.director else []
        command += self.load_options
        self.home.mkdir(parents=True, exist_ok=True)
        log = self.home.parent / f"meridian_load_{table.name}.log"
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen([*command, *table.files], stdout=output, stderr=output)
            _, status, usage = os.wait4(process.pid, 0)
        text = log.read_text(encoding="utf-8")
        if status != 0:
            raise Refused(text.strip().splitlines()[-1] if text.strip() else f"`meridian load` ended with {status}")
        if stripes := re.search(r"(\d+) stripes", text):
            (self.home.parent / "stripes.txt").write_text(stripes.group(1))
        return usage.ru_maxrss * 1024

    def bytes_on_disk(self) -> dict[str, int]:
        lines = self._run("tables", "--data", str(self.home), "--format", "json").splitlines()
        return {table["table"]: table["bytes"] for table in map(json.loads, lines)}

    def start(self) -> None:
        command = [str(self.setup.program), "sql", "--data", str(self.home), "--db", DATABASE]
        command += ["--format", "arrow", "--quiet", "--threads", str(self.setup.threads), "--file", "-"]
        # The pipes are buffered: nothing follows an answer before the next question, so no read waits for more than it needs.
        self.errors = Path(self.home.parent / "meridian_sql.log").open("w+b")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
        )
        self.ask("SELECT 1 AS ready")

    def ask(self, text: str) -> object:
        if self.process is None:
            # It ended over the last question.
            self.start()
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{text};\n".encode())
            process.stdin.flush()
            return read_answer(process.stdout)
        except (pa.ArrowInvalid, OSError) as error:
            raise Refused(self._complaint(str(error))) from None

    def _complaint(self, otherwise: str) -> str:
        """What the program said before it ended; the next question will start it anew."""
        self.stop()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip()
        self.errors.close()
        return said.splitlines()[0].removeprefix("meridian: ") if said else otherwise

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, pa.Table)
        return answer

    def stop(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def peak_memory(self) -> int:
        return high_water(self.process.pid) if self.process is not None else 0
