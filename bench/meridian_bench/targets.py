"""What fast means: the project's targets, as far as the harness asks for them yet. Seconds at the size they are for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A bound on the median (and on the 99th percentile), and what the figure here leaves out."""

    median: float
    p99: float | None = None
    note: str = ""


FEWER_PAIRS = "set for 4.1 million objects with 5.2 billion pairs"

TARGETS: dict[str, dict[str, Target]] = {
    "standard": {
        "LV1": Target(1e-3),
        "LV2": Target(2e-3),
        "LV3": Target(5e-3),
        "cone": Target(1e-3, 5e-3, "one after another in SQL; over HTTP below"),
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


@dataclass(frozen=True)
class ConeTarget:
    """Of cones over HTTP: bounds on percentiles in seconds, or how many answers a second there have to be."""

    p50: float | None = None
    p99: float | None = None
    rate: float | None = None

    def __str__(self) -> str:
        bounds = (("p50", self.p50), ("p99", self.p99))
        parts = [f"{name} ≤ {most * 1e3:.2f} ms" for name, most in bounds if most is not None]
        return ", ".join([*parts, *([f"≥ {self.rate:,.0f} a second"] if self.rate is not None else [])])


# By the names of loads in `http_cones.py`, at the standard size.
CONE_TARGETS = {"steady1000": ConeTarget(1e-3, 5e-3), "connections128": ConeTarget(rate=5_000)}
# Bytes of Object with its indexes, at the standard size.
OBJECT_BYTES = 1.45e9
