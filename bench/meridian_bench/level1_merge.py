"""A merge of the small parts of an alert database, beside pipelines that store."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meridian_apdb import AlertDatabase

from .level1_camera import Detector, exposures_of, tables_of, visit_of
from .markdown import markdown_table


@dataclass
class Merge:
    """Seconds of stores without a merge and beside one, and of the merge."""

    rows: int
    parts: int
    seconds: float = 0.0
    idle: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)


class Night:
    """Stores of one detector after the other, one every so many seconds."""

    def __init__(self, database: AlertDatabase, detectors: Sequence[Detector], visit: int, pace: float) -> None:
        self.database, self.pace = database, pace
        # What is stored is made before it is due, as a pipeline's is.
        visits = (exposures_of(detectors, at) for at in itertools.count(visit))
        self.exposures = ((moment, exposure) for moment, exposures in visits for exposure in exposures)

    def store(self, taken: list[float], goes_on: Callable[[], bool]) -> None:
        due = time.monotonic()
        while goes_on():
            moment, tables = next(self.exposures)
            time.sleep(max(0.0, due - time.monotonic()))
            begun = time.perf_counter()
            self.database.store(moment, **tables)
            taken.append(time.perf_counter() - begun)
            due = max(due + self.pace, time.monotonic() - self.pace)


def measure_merge(
    program: Path, data: Path, database: AlertDatabase, detectors: Sequence[Detector], rows: int, idle_stores: int, pace: float
) -> Merge:
    """Publishes rows, as many parts as there are visits, and merges them while one detector after the other is stored."""
    published, visit = 0, 0
    while published < rows:
        moment, frames = visit_of(detectors, visit)
        database.store(moment, **tables_of(frames))
        # The server may have published it just before, by itself.
        database.publish()
        published += sum(len(found) for found in frames.values())
        visit += 1
        if visit % 10 == 0:
            print(f"{published:,} rows are published, in {visit} parts of each table", flush=True)
    measured, night = Merge(published, visit), Night(database, detectors, visit, pace)
    night.store(measured.idle, lambda: len(measured.idle) < idle_stores)
    begun = time.monotonic()
    command = [program, "compact", "--data", data, "--db", database.name, "--all", "--quiet"]
    compaction = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    # At least one is stored meanwhile.
    ended = [0.0]

    def is_merging() -> bool:
        if compaction.poll() is None or not measured.beside:
            return True
        ended[0] = time.monotonic()
        return False

    night.store(measured.beside, is_merging)
    measured.seconds = ended[0] - begun
    told, _ = compaction.communicate()
    if compaction.returncode != 0 or "Nothing to merge" in told:
        raise SystemExit(f"nothing was merged: {told}")
    return measured


def report_merge(merges: dict[str, Merge]) -> list[str]:
    def late(values: list[float]) -> float:
        return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]

    rows = []
    for store, it in merges.items():
        idle, beside = late(it.idle), late(it.beside)
        times = [f"{it.seconds:.1f}", f"{idle * 1e3:.1f}", f"{beside * 1e3:.1f}", f"{beside / idle:.2f} x", f"{len(it.idle)}, {len(it.beside)}"]
        rows.append([store, f"{it.rows:,}", str(it.parts), *times])
    return [
        "A merge of what is published into one part a table (`meridian compact --all`), beside a store of a detector now and then; of 99 in 100 stores, ms:",
        "",
        *markdown_table(["store", "rows", "parts", "the merge, s", "a store alone", "beside the merge", "ratio", "stores"], rows),
    ]
