"""Users of a nightly alert database: they ask for cones and light curves from a process of their own, as they do from machines of their own, so that
an answer does not wait for the interpreter in which detectors are simulated."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
import urllib.request
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import numpy

# Where a detector's field begins, how wide it is, and the numbers of its variable objects.
Field = tuple[tuple[float, float], float, range]
PAUSE = 1.0
PATIENCE = 600.0


class Users:
    """So many users, who ask again and again, a second after each answer. They are there when this is made, and each asks once at least."""

    def __init__(self, url: str, database: str, fields: Sequence[Field], count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.ended = context.Event()
        self.answers, sending = context.Pipe(duplex=False)
        self.process = context.Process(target=ask, args=(url, database, fields, count, self.ended, sending), daemon=True)
        self.process.start()
        sending.close()
        self.receive()

    def check(self) -> None:
        """Ends the program if a query of theirs has failed."""
        if self.ended.is_set() or not self.process.is_alive():
            self.end()

    def end(self) -> list[float]:
        """The seconds of each of their queries."""
        self.ended.set()
        seconds, failures = self.receive()
        self.process.join()
        if failures:
            raise SystemExit(f"users' queries failed: {failures}")
        return seconds

    def receive(self) -> tuple[list[float], list[str]]:
        """What the process says: nothing when it begins, and in the end the seconds, and what has failed."""
        try:
            said: tuple[list[float], list[str]] = self.answers.recv()
        except EOFError:
            raise SystemExit("the process of the users has ended") from None
        return said


def ask(url: str, database: str, fields: Sequence[Field], count: int, ended: Event, sending: Connection) -> None:
    """The users, each in a thread."""
    seconds: list[float] = []
    failures: list[str] = []

    def user(number: int) -> None:
        rng = numpy.random.default_rng(number)
        while True:
            (ra, dec), width, keys = fields[rng.integers(len(fields))]
            east, north = rng.uniform(0, width, 2)
            statements = [
                f"SELECT * FROM DiaObjectLast WHERE scisql_s2PtInCircle(ra, `dec`, {ra + east}, {dec + north}, 0.02) = 1",
                f"SELECT midpointMjdTai, psfFlux FROM DiaSource WHERE diaObjectId = {keys[rng.integers(len(keys))]} ORDER BY midpointMjdTai",
            ]
            body = json.dumps({"statement": statements[rng.integers(2)], "database": database}).encode()
            begun = time.perf_counter()
            try:
                with urllib.request.urlopen(f"{url}/sql?format=csv", body, timeout=PATIENCE) as response:
                    response.read()
            except OSError as error:
                failures.append(str(error))
                ended.set()
                return
            seconds.append(time.perf_counter() - begun)
            if ended.wait(PAUSE):
                return

    asking = [threading.Thread(target=user, args=(number,)) for number in range(count)]
    sending.send((seconds, failures))
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    sending.send((seconds, failures))
