"""Memory and processor time of processes, from /proc."""

from __future__ import annotations

import os
import threading
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def high_water(pid: int | str) -> int:
    """The most bytes that a process has had in memory since it started; 0 if it is gone."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:")


def tree_memory(pid: int) -> int:
    """Bytes that a process and its descendants have in memory now, shared pages counted once."""
    return sum(_kilobytes(Path(f"/proc/{one}/smaps_rollup"), "Pss:") for one in [pid, *descendants(pid)])


def processor_seconds(pid: int) -> float:
    """User and system time of a process; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def descendants(pid: int) -> list[int]:
    """All processes that come from this one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may hold anything; the parent is the second field after it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, open_ends = [], [pid]
    while open_ends:
        children = parents.get(open_ends.pop(), [])
        found += children
        open_ends += children
    return found


def _kilobytes(file: Path, field: str) -> int:
    try:
        for line in file.read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class MemoryWatch(threading.Thread):
    """Looks at a process tree twice a second; `peak` is the most it saw."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peak = 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Looks until `finish`."""
        while not self.ended.wait(0.5):
            self.peak = max(self.peak, tree_memory(self.pid))

    def finish(self) -> int:
        """Stops looking; gives the peak."""
        self.ended.set()
        self.join()
        return max(self.peak, tree_memory(self.pid))
