"""Servers of cones over HTTP, started for a measurement: `meridian serve`, and the peer in front of PostgreSQL with q3c."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .contenders.meridian import DATABASE
from .install import NotInstalled
from .memory import descendants, processor_seconds

START_SECONDS = 120
STOP_SECONDS = 60
REPOSITORY = Path(__file__).resolve().parent.parent.parent
GENERATOR = "meridian-load-generator"
# Where a server says that HTTP clients connect to.
ADDRESS = re.compile(r"http://[^\s/,]+:\d+")


class NoServer(Exception):
    """A server did not start, or fell over; the text says why."""


@dataclass(frozen=True)
class PeerSetup:
    """How the peer is set up: its connections to PostgreSQL, and whether that plans the statement once or each time."""

    pool: int
    plan: str

    def __str__(self) -> str:
        return f"{self.pool} connections to PostgreSQL, {self.plan} plans"


class ConeServer:
    """A server that runs, at a port that it has chosen itself."""

    def __init__(self, command: Sequence[object], path: str, log: Path) -> None:
        self.log = log
        self.related: list[int] = []
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdout=subprocess.PIPE, stderr=errors, cwd="/"
            )
        try:
            self.base = self._address() + path
        except NoServer:
            self.stop()
            raise

    def _address(self) -> str:
        """What it says about where HTTP is, whichever line of its words that is in."""
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert self.process.stdout is not None
            # To its end: a server whose words nobody takes would stand still.
            for line in self.process.stdout:
                lines.put(line.decode(errors="replace"))
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=START_SECONDS)
            except queue.Empty:
                raise NoServer(f"it did not say within {START_SECONDS} s where HTTP is") from None
            if line is None:
                raise NoServer(f"it ended: {self._last_words()}")
            if found := ADDRESS.search(line):
                return found.group()

    def _last_words(self) -> str:
        said = self.log.read_text(errors="replace").strip().splitlines()
        return said[0] if said else "without a word"

    def processor_seconds(self) -> float:
        """Processor time of the server and of what works for it (`related`: a process with all that it started)."""
        processes = {self.process.pid}
        for pid in self.related:
            processes |= {pid, *descendants(pid)}
        return sum(processor_seconds(pid) for pid in processes)

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        try:
            self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def meridian_server(program: Path, data: Path, threads: int) -> Iterator[ConeServer]:
    """`meridian serve` on loaded data."""
    command = [program, "serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", threads, "--result-cache", "off"]
    server = ConeServer(command, f"/scs/{DATABASE}/Object", data.parent / "meridian_serve.log")
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def peer_server(
    generator: Path, cluster: Mapping[str, str], columns: Sequence[str], setup: PeerSetup, threads: int, log: Path
) -> Iterator[ConeServer]:
    """The peer on a cluster that runs: `cluster` says where its socket is, who asks, and its server's process."""
    command = [generator, "q3c-server", "--socket", cluster["socket"], "--user", cluster["user"]]
    command += ["--database", cluster["database"], "--columns", ",".join(columns)]
    command += ["--pool", setup.pool, "--plan", setup.plan, "--threads", threads]
    server = ConeServer(command, "/object", log)
    server.related.append(int(cluster["pid"]))
    try:
        yield server
    finally:
        server.stop()


def find_generator(given: Path | None, program: Path, may_build: bool) -> Path:
    """The load generator: given, or built by `scripts/release`, or where nothing may be built the one beside the program."""
    path = given or program.parent / GENERATOR
    if given is None and may_build:
        build = ["scripts/release", "load-generator"]
        if subprocess.run(build, cwd=REPOSITORY, stdout=sys.stderr, check=False).returncode != 0:
            raise NotInstalled("`scripts/release load-generator` failed")
        path = REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / GENERATOR
    if not path.is_file():
        raise NotInstalled(f"there is no load generator at {path}: build it with `scripts/release load-generator`")
    return path.resolve()
