"""A contender in a process of its own: `python -m meridian_bench.worker NAME` obeys what comes on standard input.

Requests and replies are pickles. Times are taken here, around the contender's own call, so that what passes between
the harness and this process is in none of them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from .contenders import contender_class
from .contenders.base import Contender, Setup

BENCH = Path(__file__).resolve().parent.parent


# A block of queries, or an orderly end, that takes longer is taken for a contender that hangs.
BLOCK_SECONDS = 1800.0
STOP_SECONDS = 600.0


class Trouble(Exception):
    """A contender failed at something; the text says what."""


@dataclass(frozen=True)
class Reply:
    """One answer: seconds and the rows, or what the contender complained of."""

    seconds: float
    answer: pa.Table | None
    complaint: str = ""


class Worker:
    """The harness's end: starts the process and asks it."""

    def __init__(self, name: str, setup: Setup, python: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(BENCH)}
        command = [python, "-m", "meridian_bench.worker", name]
        setup.home.parent.mkdir(parents=True, exist_ok=True)
        self.log = setup.home.parent / f"{name}_worker.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                # A group of its own, with which a contender's server can be ended too.
                start_new_session=True,
            )
        try:
            self.version = self.call("setup", setup)
        except Trouble:
            self.close()
            raise

    def call(self, request: str, *arguments: object, within: float | None = None) -> object:
        """Has the worker do something and gives what it replies, in `within` seconds if that is given."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            pickle.dump((request, arguments), self.process.stdin)
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], within)[0]:
                self._end()
                raise Trouble(f"it gave no answer within {within:.0f} s")
            succeeded, reply = pickle.load(self.process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._end()
            raise Trouble(f"its process ended: {self._last_words()}") from None
        if not succeeded:
            raise Trouble(reply)
        return reply

    def _end(self) -> None:
        """Ends the process and all that it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=20)
                time.sleep(0.5)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"

    def load(self, table: object) -> tuple[float, int]:
        """Loads a table; gives seconds and peak bytes of memory."""
        return self.call("load", table)  # type: ignore[return-value]

    def execute(self, texts: Sequence[str], answers: bool = True) -> list[Reply]:
        """Asks one after another. Without `answers` only the times come back."""
        replies = self.call("execute", list(texts), answers, within=BLOCK_SECONDS)
        return [
            Reply(seconds, _from_bytes(content) if content else None, complaint)
            for seconds, content, complaint in replies  # type: ignore[attr-defined]
        ]

    def close(self) -> None:
        """Ends the contender and the process."""
        try:
            if self.process.poll() is None:
                self.call("stop", within=STOP_SECONDS)
        except Trouble:
            pass
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._end()


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # Names may occur twice or be empty in an answer; positions are what is compared.
    table = table.rename_columns([f"column_{at}" for at in range(table.num_columns)])
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _from_bytes(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


class Servant:
    """The worker's end."""

    contender: Contender

    def __init__(self, name: str) -> None:
        self.name = name

    def setup(self, setup: Setup) -> str:
        """Imports the contender; gives its version."""
        self.contender = contender_class(self.name)(setup)
        return self.contender.version()

    def load(self, table: object) -> tuple[float, int]:
        """Loads one table."""
        self.contender.prepare()
        start = time.perf_counter()
        peak = self.contender.load(table)  # type: ignore[arg-type]
        seconds = time.perf_counter() - start
        return seconds, peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def start(self) -> None:
        """Opens the loaded tables."""
        self.contender.start()

    def bytes_on_disk(self) -> dict[str, int]:
        """By table."""
        return self.contender.bytes_on_disk()

    def peak_memory(self) -> int:
        """Bytes."""
        return self.contender.peak_memory()

    def cluster(self) -> dict[str, str]:
        """How others reach the contender's server."""
        return self.contender.cluster()

    def execute(self, texts: list[str], answers: bool) -> list[tuple[float, bytes, str]]:
        """Asks each text; a complaint stands in place of an answer."""
        replies = []
        for text in texts:
            start = time.perf_counter()
            try:
                answer = self.contender.execute(text)
            except Exception as error:
                replies.append((time.perf_counter() - start, b"", _sentence(error)))
                continue
            seconds = time.perf_counter() - start
            replies.append((seconds, _to_bytes(self.contender.to_arrow(answer)) if answers else b"", ""))
        return replies

    def stop(self) -> None:
        """Ends the contender; the process ends when its input does."""
        self.contender.stop()


def _sentence(error: BaseException) -> str:
    """The first line of what an error says."""
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def serve(servant: Servant, requests: BinaryIO, replies: BinaryIO) -> None:
    """Obeys until the input ends."""
    try:
        while True:
            try:
                request, arguments = pickle.load(requests)
            except EOFError:
                return
            try:
                reply = (True, getattr(servant, request)(*arguments))
            except Exception as error:
                reply = (False, _sentence(error))
            pickle.dump(reply, replies)
            replies.flush()
    finally:
        if hasattr(servant, "contender"):
            servant.contender.stop()


def main() -> None:
    """Keeps standard output for replies: what libraries print goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(Servant(sys.argv[1]), sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
