"""How much memory a server holds while something is done to it, and whether it goes on answering others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from serving import Server

MIB = 1 << 20
# How often the memory is looked at: what comes and goes between two looks is not seen.
LOOK_SECONDS = 0.01


class Watched:
    """What was seen of a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.most_resident = server.resident_bytes()
        self.slowest_answer = 0.0
        self.answers = 0
        self.over = threading.Event()

    def look(self) -> None:
        """Looks at its memory until it is over."""
        while not self.over.wait(LOOK_SECONDS) and self.server.process.poll() is None:
            self.most_resident = max(self.most_resident, self.server.resident_bytes())

    def execute(self, statement: str) -> None:
        """Asks the same again and again until it is over, each time by a connection of its own."""
        while not self.over.is_set():
            begun = time.monotonic()
            with self.server.connect() as connected, connected.cursor() as cursor:
                cursor.execute(statement)
                assert len(cursor.fetchall()) == 1
            self.slowest_answer = max(self.slowest_answer, time.monotonic() - begun)
            self.answers += 1
            self.over.wait(0.05)

    def assert_within(self, resident: int, seconds: float) -> None:
        """Its memory was within a bound, it lives, and each query beside was answered in time."""
        assert self.server.process.poll() is None, self.server.log
        mebibytes = self.most_resident / MIB
        assert self.most_resident <= resident, f"it held {mebibytes:.0f} MiB, more than {resident / MIB:.0f}"
        assert self.answers > 0 and self.slowest_answer <= seconds, f"an answer took {self.slowest_answer:.1f} s"


@contextmanager
def watched(server: Server, statement: str) -> Iterator[Watched]:
    """Watches a server's memory, and asks it something meanwhile that has one row."""
    seen = Watched(server)
    failures: list[BaseException] = []

    def asking() -> None:
        try:
            seen.execute(statement)
        except BaseException as error:  # noqa: BLE001 - told where the test waits for it
            failures.append(error)

    threads = [threading.Thread(target=seen.look, daemon=True), threading.Thread(target=asking, daemon=True)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        seen.over.set()
        for thread in threads:
            thread.join(timeout=60)
    if failures:
        raise failures[0]
