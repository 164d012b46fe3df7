"""A server of Meridian's that speaks HTTP, for as long as it is needed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """Where it listens, and its process."""

    address: str
    process: int


@contextmanager
def served(program: Path, data: Path, *options: str) -> Iterator[Served]:
    """A server of a data directory, at a port that the system has chosen."""
    command = [program, "serve", "--data", data, "--mysql", "off", "--http", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if match := re.search(r"HTTP clients connect to (http://[\d.]+:\d+)", line):
                yield Served(match.group(1), process.pid)
                break
        else:
            raise SystemExit("the server does not start")
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(60)
