"""A PostgreSQL with q3c for tests, where its packages are installed: a cluster of its own on a Unix socket."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BINARIES = Path("/usr/lib/postgresql/15/bin")
EXTENSION = Path("/usr/share/postgresql/15/extension/q3c.control")
START_SECONDS = 60


def is_installed() -> bool:
    """Whether PostgreSQL 15 and q3c are there."""
    return (BINARIES / "postgres").is_file() and EXTENSION.is_file()


def as_server_user(*command: object) -> list[str]:
    """PostgreSQL refuses to run as root: then it runs as the user that its package made."""
    words = [str(word) for word in command]
    return ["runuser", "-u", "postgres", "--", *words] if os.getuid() == 0 else words


@contextmanager
def q3c_cluster() -> Iterator[Path]:
    """A cluster that runs, with q3c in the database `postgres` of the user `tester`; gives the directory of its socket."""
    with tempfile.TemporaryDirectory(prefix="q3c_") as text:
        directory = Path(text)
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(directory, owner.pw_uid, owner.pw_gid)
        data = directory / "data"
        initdb = as_server_user(BINARIES / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-N")
        subprocess.run(initdb, check=True, capture_output=True, cwd="/")
        # No port is opened, so no other cluster is in the way.
        options = ["-c", "listen_addresses=", "-c", "fsync=off"]
        server = subprocess.Popen(
            as_server_user(BINARIES / "postgres", "-D", data, "-k", directory, *options),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        try:
            wait_until_it_answers(directory, server)
            execute(directory, "CREATE EXTENSION q3c")
            yield directory
        finally:
            stop = as_server_user(BINARIES / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
            subprocess.run(stop, check=False, capture_output=True, cwd="/")
            server.wait(timeout=START_SECONDS)


def wait_until_it_answers(socket: Path, server: subprocess.Popen[bytes]) -> None:
    """Until queries are answered."""
    give_up = time.monotonic() + START_SECONDS
    while subprocess.run([BINARIES / "pg_isready", "-h", socket], capture_output=True, check=False).returncode != 0:
        assert server.poll() is None and time.monotonic() < give_up, "PostgreSQL does not start"
        time.sleep(0.05)


def execute(socket: Path, text: str, rows: str = "") -> None:
    """Has a statement run; `rows` are what a COPY reads."""
    command = [BINARIES / "psql", "-h", socket, "-U", "tester", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-q", "-c", text]
    done = subprocess.run(command, input=rows, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
