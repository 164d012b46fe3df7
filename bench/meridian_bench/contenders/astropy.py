"""astropy: the catalogue as `SkyCoord`s in memory, searched by its k-d trees."""

from __future__ import annotations

import astropy
import numpy as np
import pyarrow as pa
import pyarrow.dataset
from astropy import units
from astropy.coordinates import SkyCoord, match_coordinates_sky, search_around_sky

from ..catalogue import TableFiles
from .base import Setup
from .tool import Tool, colours, counted, in_box


class Astropy(Tool):
    """The field's library, as in a notebook. It has nothing on disk: its load is reading and building the tree."""

    rows: pa.Table | None = None

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.positions: dict[str, SkyCoord] = {}

    def version(self) -> str:
        return str(astropy.__version__)

    def load(self, table: TableFiles) -> int | None:
        rows = pyarrow.dataset.dataset(table.files).to_table().combine_chunks()
        ra, dec = (rows.column(name).to_numpy() for name in (table.ra, table.dec))
        self.positions[table.name] = SkyCoord(ra * units.deg, dec * units.deg)
        # The first search builds the tree and keeps it with the positions.
        search_around_sky(self.positions[table.name][:1], self.positions[table.name], 1e-6 * units.deg)
        if table.name == "Object":
            self.rows = rows
        return None

    def bytes_on_disk(self) -> dict[str, int]:
        return {}

    def start(self) -> None:
        for table in self.setup.tables.values():
            self.load(table)

    def cone(self, ra: float, dec: float, radius: float) -> pa.Table:
        """The rows of a cone, in degrees."""
        assert self.rows is not None
        centre = SkyCoord([ra] * units.deg, [dec] * units.deg)
        found = search_around_sky(centre, self.positions["Object"], radius * units.deg)[1]
        return self.rows.take(pa.array(found))

    def pairs(self, work: str, radius: float, colour: float, **box: float) -> pa.Table:
        """Ordered pairs within a radius in degrees, each row with itself too."""
        assert self.rows is not None
        all_rows = self.positions["Object"]
        inside = in_box(all_rows.ra.deg, all_rows.dec.deg, box)
        positions = all_rows[inside]
        one, other, separation, _ = search_around_sky(positions, positions, radius * units.deg)
        if work == "count":
            return counted(len(one))
        if work == "sum":
            return counted(len(one), float(separation.deg.sum()))
        of_row = colours(self.rows.filter(pa.array(inside)))
        return counted(int((np.abs(of_row[one] - of_row[other]) < colour).sum()))

    def match(self, radius: float) -> pa.Table:
        """The nearest row of Infrared within a radius in degrees of each row of Optical."""
        _, separation, _ = match_coordinates_sky(self.positions["Optical"], self.positions["Infrared"])
        found = separation.deg[separation.deg < radius]
        return counted(len(found), float(found.sum() * 3600))

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, pa.Table)
        return answer

    def stop(self) -> None:
        self.rows = None
        self.positions.clear()
