"""What a query is: its text by dialect, and what it needs.

In a text, `MAG(f)` is the AB magnitude of a flux, `MAGERR(f, s)` its error, `COLUMNS` all columns of Object as they
were made (peers hold columns of their own besides), and names in braces are constants (see `constants.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LOOKUP, SCAN, JOIN = "lookup", "scan", "spatial join"

# Fluxes are cast to double before anything is computed, as Meridian does, so that cuts fall on the same rows.
MAGNITUDES = {
    "meridian": ("scisql_fluxToAbMag({f})", "scisql_fluxToAbMagSigma({f}, {s})"),
    "duckdb": (
        "(CASE WHEN {f} > 0 THEN -2.5 * log10({f}::DOUBLE) - 48.6 END)",
        "(CASE WHEN {f} > 0 THEN 1.0857362047581294 * {s}::DOUBLE / {f}::DOUBLE END)",
    ),
    "clickhouse": (
        "if({f} > 0, -2.5 * log10(toFloat64({f})) - 48.6, NULL)",
        "if({f} > 0, 1.0857362047581294 * toFloat64({s}) / toFloat64({f}), NULL)",
    ),
    "postgres": (
        "(CASE WHEN {f} > 0 THEN -2.5 * log10({f}::float8) - 48.6 END)",
        "(CASE WHEN {f} > 0 THEN 1.0857362047581294 * {s}::float8 / {f}::float8 END)",
    ),
    # Its LOG10 gives NULL where there is no logarithm.
    "mariadb": ("(-2.5e0 * LOG10({f}) - 48.6e0)", "(1.0857362047581294e0 * {s} / {f})"),
}


@dataclass(frozen=True)
class Pairs:
    """How many pairs a spatial join looks for: the box (see `sizes.Size.boxes`), the radius in degrees, what is done with them.

    `work` is `count`, `sum` (the separation of each is computed) or `cut` (a condition on each is tested).
    """

    box: str
    radius: float
    work: str


@dataclass(frozen=True)
class Query:
    """One query. `texts` has a text for each dialect that needs its own, `text` is for the others."""

    name: str
    # May name the areas of boxes, in square degrees, by their names in braces.
    title: str
    kind: str
    text: str
    texts: dict[str, str] = field(default_factory=dict)
    tables: Sequence[str] = ("Object",)
    # Columns beyond those that every size of the catalogue has.
    columns: Sequence[str] = ()
    # Meridian's own column of chunk numbers, and the peers' counterpart, take part.
    by_chunk: bool = False
    cold: bool = False
    pairs: Pairs | None = None
    # Contenders that are never asked this, and why.
    left_out: Mapping[str, str] = field(default_factory=dict)

    def asked_in(self, dialect: str, constants: dict[str, object], columns: Sequence[str]) -> str | None:
        """The text in a dialect, or None if the query has none in it."""
        template = self.texts.get(dialect, "" if dialect == "python" else self.text)
        if not template:
            return None
        if dialect == "python":
            return template % constants
        every = "*" if dialect == "meridian" else ", ".join(columns)
        text = template.replace("COLUMNS", every).format(**constants)
        magnitude, error = MAGNITUDES[dialect]
        text = re.sub(r"\bMAGERR\(([^,()]+), ([^()]+)\)", lambda m: error.format(f=m[1], s=m[2]), text)
        return re.sub(r"\bMAG\(([^()]+)\)", lambda m: magnitude.format(f=m[1]), text)
