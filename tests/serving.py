"""Runs `meridian serve` for tests: where it listens, what it takes of the machine, how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pymysql

from meridian_cli import Meridian

START_SECONDS = 60
STOP_SECONDS = 60
# What takes no time has come within so many seconds, also on a busy machine; what does not come of itself takes a minute or hours.
SOON = 20.0
# Between two looks at what is waited for.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.1
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Processor seconds that may pass from the end of a statement on, for all that the server does.
STILL = 2.0


class Server:
    """A server on a port of its own."""

    def __init__(self, meridian: Meridian, data: Path, *options: object) -> None:
        self.said: list[str] = []
        self.logged: list[str] = []
        # Each statement runs, but in tests of the result cache.
        usual = {"--mysql": "127.0.0.1:0", "--http": "127.0.0.1:0", "--result-cache": "off"}
        self.has_tls = "--tls-cert" in options
        endpoints = [word for pair in usual.items() if pair[0] not in options for word in pair]
        self.process = meridian.start("serve", "--data", data, *endpoints, *options)
        assert self.process.stdout is not None and self.process.stderr is not None
        self._listen(self.process.stdout, self.said)
        self._listen(self.process.stderr, self.logged)
        self.port = self._port("MySQL clients connect to ")
        self.http_port = self._port("HTTP clients connect to http://")

    def _listen(self, pipe: object, lines: list[str]) -> None:
        def read() -> None:
            for line in pipe:  # type: ignore[attr-defined]
                lines.append(line.decode("utf-8", "replace").rstrip())

        threading.Thread(target=read, daemon=True).start()

    def _port(self, words: str) -> int:
        def found() -> re.Match[str] | None:
            return re.search(re.escape(words) + r"[\d.]+:(\d+)", "\n".join(self.said))

        wait_until(lambda: found() is not None or self.process.poll() is not None, START_SECONDS, "listens")
        match = found()
        assert match is not None, f"it did not start:\n{self.log}"
        return int(match.group(1))

    @property
    def log(self) -> str:
        """What it has logged."""
        return "\n".join(self.logged)

    def connect(self, **options: object) -> pymysql.connections.Connection:
        """A connection of PyMySQL's."""
        settings: dict[str, object] = {"host": "127.0.0.1", "port": self.port, "user": "tester", "charset": "utf8mb4"}
        # Else it loads all certificate authorities of the system for each connection, in forty milliseconds of processor time.
        settings["ssl_disabled"] = not self.has_tls and not any(name.startswith("ssl") for name in options)
        return pymysql.connect(**{**settings, **options})  # type: ignore[call-overload,no-any-return]

    def url(self, path: str, **parameters: object) -> str:
        """An address at the HTTP endpoint."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"http://127.0.0.1:{self.http_port}{path}{query}"

    def processor_seconds(self) -> float:
        """The processor time that the process has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self, *, with_files: bool = False) -> int:
        """The memory that the process has allocated; `with_files` adds the pages of its program and of mapped files, which the system
        drops when it needs room."""
        resident, of_files = map(int, Path(f"/proc/{self.process.pid}/statm").read_text().split()[1:3])
        return (resident if with_files else resident - of_files) * PAGE

    def is_idle(self, seconds: float = 0.5) -> bool:
        """Whether the process takes next to no processor time for a while."""
        before = self.processor_seconds()
        time.sleep(seconds)
        return self.processor_seconds() - before < 0.1 * seconds

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends the process with a signal; gives its exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Waits for the process to end."""
        try:
            return self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def serving(meridian: Meridian, data: Path, *options: object) -> Iterator[Server]:
    """A server for as long as it is needed. The end checks that it did not panic."""
    server = Server(meridian, data, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
        assert "the server panic" not in server.log and "panicked" not in server.log, server.log


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits until something is so."""
    give_up = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if done():
            return
        now = time.monotonic()
        assert now < give_up, f"not within {seconds} s: {what}"
        # What starts a program to find out would take the processor from what is waited for.
        time.sleep(min(max(SHORTEST_PAUSE, 2 * (now - begun)), LONGEST_PAUSE))


def assert_still(server: Server) -> None:
    """From now on the server computes no more than what a check takes to come, and what giving memory back does."""
    before = server.processor_seconds()
    spent = 0.0
    while not server.is_idle(0.3):
        spent = server.processor_seconds() - before
        assert spent < STILL, f"it computed for {spent:.2f} s after the statement had ended, and still does"
