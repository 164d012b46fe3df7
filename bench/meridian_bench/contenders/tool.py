"""What contenders without SQL have in common: a query is JSON that names what to do, and with what."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from .base import Contender


class Tool(Contender):
    """A library or a command. Its methods `cone`, `pairs` and `match` do what is asked."""

    def execute(self, text: str) -> object:
        query = json.loads(text)
        return getattr(self, query.pop("method"))(**query)


def counted(n: int, total: float | None = None) -> pa.Table:
    """The answer to a spatial join: how many pairs, and the sum of their separations if that was asked."""
    columns: dict[str, pa.Array] = {"n": pa.array([n], pa.int64())}
    if total is not None:
        columns["total"] = pa.array([total], pa.float64())
    return pa.table(columns)


def in_box(ra: np.ndarray, dec: np.ndarray, box: dict[str, float]) -> np.ndarray:
    """Which rows lie in a box of right ascension and declination, edges included."""
    inside: np.ndarray = (ra >= box["ra0"]) & (ra <= box["ra1"]) & (dec >= box["dec0"]) & (dec <= box["dec1"])
    return inside


def colours(rows: pa.Table) -> np.ndarray:
    """g - r of each row, NaN where either flux is missing or has no logarithm."""
    fluxes = [rows.column(f"{band}Flux_PS").to_numpy().astype(np.float64) for band in "gr"]
    with np.errstate(divide="ignore", invalid="ignore"):
        g, r = (-2.5 * np.log10(np.where(flux > 0, flux, np.nan)) - 48.6 for flux in fluxes)
        difference: np.ndarray = g - r
    return difference
