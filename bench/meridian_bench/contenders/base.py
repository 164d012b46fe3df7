"""What a contender must be able to do. Each lives in a process of its own, held by `worker.py`."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..catalogue import TableFiles
from ..memory import high_water

# A query that takes a server longer is given up, so that one bad plan does not hold up the run.
LONGEST_SECONDS = 300


class Refused(Exception):
    """The contender says that it does not answer a query."""


@dataclass(frozen=True)
class Setup:
    """What all contenders are told alike."""

    home: Path
    tables: dict[str, TableFiles]
    threads: int
    memory: int
    program: Path
    # Stripes of Meridian's partitioning, from which chunk numbers follow; unknown while Meridian loads.
    stripes: int | None = None
    # How many servers with a pool of their own run at the same time.
    servers: int = 1

    @property
    def pool(self) -> int:
        """Bytes in which a server keeps its tables: of the machine a third, as Meridian by default keeps decoded columns in."""
        return self.memory // 3 // self.servers


@dataclass(frozen=True)
class Fetched:
    """An answer as Python's database interface gives it."""

    rows: Sequence[Sequence[Any]]
    description: Sequence[Any]


class Contender(ABC):
    """One database or tool. The worker calls `prepare`, `load`s, then `start`, many times `ask`, and `stop`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.home = setup.home

    @abstractmethod
    def version(self) -> str:
        """Its version, for the report."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """What has to be there before a load, and does not count as part of it: a server that runs."""

    @abstractmethod
    def load(self, table: TableFiles) -> int | None:
        """Loads a table from its Parquet files; gives the loading process's peak memory if it is another one's."""

    @abstractmethod
    def bytes_on_disk(self) -> dict[str, int]:
        """Bytes by table, with indexes."""

    @abstractmethod
    def start(self) -> None:
        """Opens what was loaded, so far that a query can be asked at once."""

    @abstractmethod
    def execute(self, text: str) -> object:
        """Asks, and has the whole answer in the client's memory when it returns. This is what is timed."""

    @abstractmethod
    def to_arrow(self, answer: object) -> pa.Table:
        """The answer as an Arrow table, for comparison. Not timed."""

    @abstractmethod
    def stop(self) -> None:
        """Ends everything that runs for it."""

    def cluster(self) -> dict[str, str]:
        """How others reach its server, where it has one: `socket` (a directory), `user`, `database` and its process (`pid`)."""
        raise Refused("it has no server")

    def peak_memory(self) -> int:
        """Bytes: the most that its processes have had in memory since they started."""
        return high_water("self")


def run_once(command: Sequence[object]) -> None:
    """Runs a program that makes something ready; if it fails, what it said first is the reason."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd="/", check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Refused(
            f"{' '.join(str(word) for word in command[:5])}... failed: {said[0] if said else 'no reason given'}"
        )


def directory_size(directory: Path) -> int:
    """Bytes of all files below a directory, as the file system counts them."""
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file())
