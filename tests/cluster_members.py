"""Runs clusters for tests: a front end and workers on this machine, each with a directory and ports of its own."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meridian_cli import Meridian, Outcome
from serving import START_SECONDS, STOP_SECONDS, Server, wait_until

# The disk of who runs the tests may be fuller than that of a worker should be.
ROOM = ("--disk-limit", 100)


class Member:
    """A worker."""

    def __init__(self, meridian: Meridian, name: str, directory: Path, *options: object) -> None:
        self.name, self.directory = name, directory
        self.lines: list[str] = []
        self.process = meridian.start("worker", "--name", name, "--data", directory, *options)
        assert self.process.stdout is not None and self.process.stderr is not None
        for pipe in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._read, args=(pipe,), daemon=True).start()

    def _read(self, pipe: object) -> None:
        for line in pipe:  # type: ignore[attr-defined]
            self.lines.append(line.decode("utf-8", "replace").rstrip())

    @property
    def log(self) -> str:
        """What it has said."""
        return "\n".join(self.lines)

    @property
    def port(self) -> int:
        """Where it listens."""

        def found() -> re.Match[str] | None:
            return re.search(r"listens at [\d.]+:(\d+)", self.log)

        wait_until(lambda: found() is not None or self.process.poll() is not None, START_SECONDS, "the worker listens")
        match = found()
        assert match is not None, self.log
        return int(match.group(1))

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends it; gives its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            # One that was suspended would never see it.
            self.process.send_signal(signal.SIGCONT)
        try:
            return self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def files(self) -> list[Path]:
        """The chunk files that it holds."""
        return sorted(self.directory.glob("replicas/tables/*/*/chunk_*.mrd"))


class Cluster:
    """A front end and its workers."""

    def __init__(
        self, meridian: Meridian, directory: Path, data: Path, replicas: int, *options: object, tls: bool = False, address: str = "127.0.0.1:0"
    ) -> None:
        self.meridian, self.directory, self.data = meridian, directory, data
        directory.mkdir(parents=True, exist_ok=True)
        self.secret = directory / "secret"
        self.secret.touch(mode=0o600)
        self.secret.write_text(secrets.token_hex(32) + "\n")
        self.certificates = directory / "tls" if tls else None
        if self.certificates is not None:
            meridian.must("cluster", "init", "--directory", self.certificates, *(f"w{number}" for number in range(3)))
        self.replicas, self.options = replicas, options
        self.address = address
        self.workers: dict[str, Member] = {}
        self.server = self._start()

    def credentials(self, member: str) -> tuple[object, ...]:
        """What a member is given, with which the others know it."""
        if self.certificates is None:
            return ("--cluster-secret", self.secret)
        return ("--cluster-tls", self.certificates / member)

    def _start(self) -> Server:
        """The front end; at the address that it had, if it had one."""
        joined = ("--cluster", self.address, *self.credentials("front-end"), "--replicas", self.replicas)
        server = Server(self.meridian, self.data, *joined, *self.options)
        wait_until(lambda: any("Workers join at " in line for line in server.said), START_SECONDS, "the front end listens")
        match = re.search(r"Workers join at ([\d.]+:\d+)", "\n".join(server.said))
        assert match is not None
        self.address = match.group(1)
        return server

    def restart_front_end(self, number: int) -> None:
        """Ends the front end with a signal, and starts it again."""
        self.server.stop(number)
        self.server = self._start()

    def start_worker(self, name: str, *options: object, meridian: Meridian | None = None, threads: int = 2) -> Member:
        """A worker; one of a name that it had has its directory still. `meridian` is the program, if it is started in another way."""
        joined = ("--join", self.address, *self.credentials(name), "--threads", threads, "--memory", "512M", "--cache", "64M")
        if "--disk-limit" not in options:
            joined = (*joined, *ROOM)
        member = Member(meridian or self.meridian, name, self.directory / name, *joined, *options)
        self.workers[name] = member
        return member

    def command(self, *words: object) -> Outcome:
        """`meridian cluster` with some words."""
        return self.meridian.run("cluster", *words, "--cluster", self.address, *self.credentials("operator"))

    def status(self) -> dict:  # type: ignore[type-arg]
        """The state of the cluster."""
        outcome = self.command("status", "--format", "json")
        assert outcome.status == 0, outcome.complaint
        found = json.loads(outcome.text)
        assert isinstance(found, dict)
        return found

    def has_replicas(self) -> bool:
        """Whether each file has its replicas."""
        return self.command("check").status == 0

    def wait_for_replicas(self, seconds: float = 60) -> None:
        """Waits until each file has its replicas."""
        wait_until(self.has_replicas, seconds, "each file has its replicas")

    def pieces(self) -> dict[str, int]:
        """The pieces that each live worker has run."""
        return {worker["name"]: worker["pieces"] for worker in self.status()["workers"]}

    def end(self) -> None:
        """Ends all members."""
        if self.server.process.poll() is None:
            self.server.stop()
        for worker in self.workers.values():
            worker.end(signal.SIGKILL)

    @property
    def panics(self) -> str:
        """What members have logged of panics."""
        lines = [*self.server.logged, *(line for worker in self.workers.values() for line in worker.lines)]
        return "\n".join(line for line in lines if "panicked" in line or "the server panic" in line)


def make_unreadable(path: Path) -> None:
    """Has the system fail to open a file (ELOOP), also for root, as it does with one that its disk does not give."""
    path.unlink()
    path.symlink_to(path.name)


@contextmanager
def cluster_of(
    meridian: Meridian, directory: Path, data: Path, workers: int = 3, replicas: int = 2, *options: object, tls: bool = False
) -> Iterator[Cluster]:
    """A cluster whose files have their replicas. The end checks that nobody has panicked."""
    cluster = Cluster(meridian, directory, data, replicas, *options, tls=tls)
    try:
        for number in range(workers):
            cluster.start_worker(f"w{number}")
        wait_until(lambda: len(cluster.status()["workers"]) == workers, START_SECONDS, "the workers have joined")
        cluster.wait_for_replicas()
        yield cluster
    finally:
        cluster.end()
    assert not cluster.panics, cluster.panics
