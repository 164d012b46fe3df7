"""What fast means: the project's targets, as far as the harness asks for them yet. Seconds at the size they are for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A bound on the median (and on the 99th percentile), and what the figure here leaves out."""

    median: float
    p99: float | None = None
    note: str = ""


OVER_MYSQL = "asked over the MySQL protocol; here through a pipe"
FEWER_PAIRS = "set for 4.1 million objects with 5.2 billion pairs"

TARGETS: dict[str, dict[str, Target]] = {
    "standard": {
        "LV1": Target(1e-3, note=OVER_MYSQL),
        "LV2": Target(2e-3, note=OVER_MYSQL),
        "LV3": Target(5e-3),
        "cone": Target(1e-3, 5e-3, "asked over HTTP at 1,000 requests a second; here one after another through a pipe"),
        "HV1": Target(2e-3),
        "HV2": Target(0.15),
        "HV2b": Target(0.04),
        "HV3": Target(0.10),
        "SHV1": Target(4.0, note=FEWER_PAIRS),
        "SHV2": Target(0.35),
        "near": Target(0.3),
        "match": Target(0.4),
    },
    "large": {"HV2": Target(4.0)},
}
# Bytes of Object with its indexes, at the standard size.
OBJECT_BYTES = 1.45e9
