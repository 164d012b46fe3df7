"""The three sizes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How much is loaded and how often is asked."""

    objects: int
    # Sources of each object; 0: Object alone, and of that the nine columns.
    epochs: int
    lookups: int
    block: int
    rounds: int
    cold_rounds: int
    # How often those load that load quickly.
    loads: int
    peers: Sequence[str]
    # Seconds that one contender may spend on one query before it sits out the rest of it.
    budget: float
    # Sides in degrees of the boxes in which pairs are looked for: all of SHV1, the part of it that slower peers are
    # asked, and near neighbours.
    boxes: Mapping[str, float]
    # Rows of Optical; Infrared has half as many.
    matched: int
    # Whether what two contenders keep in memory is too much for the machine, so that one runs at a time.
    apart: bool = False


EVERY_PEER = ("duckdb", "chdb", "postgres", "mariadb", "astropy", "scipy", "stilts", "lsdb")
FULL_BOXES = {"shv1": 10.0, "part": 1.0, "near": 5.0}

SIZES = {
    "tiny": Size(20_000, 5, 10, 5, 2, 1, 2, ("duckdb",), 20.0, {"shv1": 0.15, "part": 0.1, "near": 0.2}, 20_000),
    "small": Size(200_000, 5, 50, 25, 3, 1, 3, EVERY_PEER, 20.0, {"shv1": 1.0, "part": 0.5, "near": 1.5}, 200_000),
    "standard": Size(20_000_000, 5, 2_000, 50, 7, 3, 3, EVERY_PEER, 90.0, FULL_BOXES, 2_050_000),
    "large": Size(400_000_000, 0, 500, 50, 5, 1, 1, ("duckdb", "chdb"), 300.0, FULL_BOXES, 2_050_000, apart=True),
}

# Those that are asked in turns with Meridian at the same time. What stands together has to fit into memory together.
GROUPS = (("duckdb", "chdb"), ("postgres",), ("mariadb",), ("astropy", "stilts", "lsdb"), ("scipy",))

# Bytes on disk for each object and each source while it loads, sorting beside the data included, of runs at smaller
# sizes and with something on top: for the check of free room.
ROOM = {
    "catalogue": (62, 32),
    "meridian": (140, 80),
    "duckdb": (150, 60),
    "chdb": (150, 60),
    "postgres": (330, 110),
    "mariadb": (250, 160),
    "astropy": (0, 0),
    "scipy": (0, 0),
    "stilts": (180, 0),
    "lsdb": (190, 0),
}
# What must stay free, for others and for the unexpected.
SPARE_BYTES = 2 * 2**30


def room_for(name: str, objects: int, sources: int, columns: int) -> int:
    """Bytes that a contender is expected to need; objects of fewer columns need less."""
    per_object, per_source = ROOM[name]
    return int(per_object * min(1.0, columns / 17) * objects + per_source * sources)
