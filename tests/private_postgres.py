"""A PostgreSQL for tests: a cluster of its own, in a temporary directory, that no other one is in the way of."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60
USER = "tester"


def binaries() -> Path | None:
    """Where the newest server's programs are, as Debian installs them."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def as_server_user(*command: object) -> list[str]:
    """PostgreSQL refuses to run as root: then it runs as the user that its package made."""
    words = [str(word) for word in command]
    return ["runuser", "-u", "postgres", "--", *words] if os.getuid() == 0 else words


def make_data(programs: Path, data: Path) -> None:
    """Makes the data directory of a server that lets everybody in, in one that the server's user owns."""
    initdb = as_server_user(programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
    subprocess.run(initdb, check=True, capture_output=True, cwd="/")


@contextmanager
def private_postgres(*options: str) -> Iterator[str]:
    """A cluster that runs; gives the URL of its database."""
    programs = binaries()
    if programs is None:
        raise RuntimeError("there is no PostgreSQL: install Debian's package postgresql")
    with tempfile.TemporaryDirectory(prefix="postgres_") as text:
        directory = Path(text)
        if os.getuid() == 0:
            shutil.chown(directory, pwd.getpwnam("postgres").pw_uid)
        data = directory / "data"
        make_data(programs, data)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", *options]
        server = subprocess.Popen(
            as_server_user(programs / "postgres", "-D", data, "-k", directory, *settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        try:
            give_up = time.monotonic() + START_SECONDS
            ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
            while subprocess.run(ready, capture_output=True, check=False).returncode != 0:
                assert server.poll() is None and time.monotonic() < give_up, "PostgreSQL does not start"
                time.sleep(0.05)
            yield f"postgres://{USER}@127.0.0.1:{port}/postgres"
        finally:
            stop = as_server_user(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
            subprocess.run(stop, check=False, capture_output=True, cwd="/")
            server.wait(timeout=START_SECONDS)
