"""Two PostgreSQL servers for tests: a primary, and a standby that has on its disk whatever the primary acknowledges."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from private_postgres import START_SECONDS, USER, as_server_user, binaries, make_data


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Cluster:
    """One of the servers."""

    programs: Path
    data: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-k", str(self.data.parent)]
        command = as_server_user(self.programs / "postgres", "-D", self.data, *settings, *(word for option in options for word in ("-c", option)))
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/")
        ready = [self.programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)]
        give_up = time.monotonic() + START_SECONDS
        while subprocess.run(ready, capture_output=True, check=False).returncode != 0:
            assert self.process.poll() is None and time.monotonic() < give_up, "PostgreSQL does not start"
            time.sleep(0.05)

    def execute(self, statement: str) -> str:
        command = [self.programs / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres", "-Atqc", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def kill(self) -> None:
        """Kills it as a machine does that loses its power: all of its processes at once."""
        pid = int((self.data / "postmaster.pid").read_text().split()[0])
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        # The one that starts others first.
        for each in [pid, *map(int, listed)]:
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert self.process is not None
        self.process.wait(timeout=START_SECONDS)

    def promote(self) -> None:
        subprocess.run(as_server_user(self.programs / "pg_ctl", "-D", self.data, "-w", "promote"), check=True, capture_output=True, cwd="/")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            stop = as_server_user(self.programs / "pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")
            subprocess.run(stop, check=False, capture_output=True, cwd="/")
            self.process.wait(timeout=START_SECONDS)


@dataclass
class Pair:
    """A primary and its standby."""

    primary: Cluster
    standby: Cluster

    @property
    def url(self) -> str:
        hosts = f"127.0.0.1:{self.standby.port},127.0.0.1:{self.primary.port}"
        return f"postgres://{USER}@{hosts}/postgres?target_session_attrs=read-write"


@contextmanager
def replicated_postgres() -> Iterator[Pair]:
    """A primary that waits for its standby with each commit."""
    programs = binaries()
    if programs is None:
        raise RuntimeError("there is no PostgreSQL: install Debian's package postgresql")
    with tempfile.TemporaryDirectory(prefix="postgres_") as text:
        directory = Path(text)
        if os.getuid() == 0:
            shutil.chown(directory, pwd.getpwnam("postgres").pw_uid)
        primary, standby = Cluster(programs, directory / "primary"), Cluster(programs, directory / "standby")
        make_data(programs, primary.data)
        try:
            # The standby's sessions ask for less by themselves: what stores acknowledge does not depend on it.
            primary.start("synchronous_standby_names=*", "synchronous_commit=off", "wal_level=replica")
            source = f"host=127.0.0.1 port={primary.port} user={USER} application_name=standby"
            backup = as_server_user(programs / "pg_basebackup", "-D", standby.data, "-R", "-c", "fast", "-d", source)
            subprocess.run(backup, check=True, capture_output=True, cwd="/")
            standby.start("hot_standby=on")
            give_up = time.monotonic() + START_SECONDS
            while primary.execute("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "1":
                assert time.monotonic() < give_up, "the standby does not follow"
                time.sleep(0.05)
            yield Pair(primary, standby)
        finally:
            primary.stop()
            standby.stop()
