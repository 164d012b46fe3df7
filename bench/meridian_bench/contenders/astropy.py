"""astropy: the catalogue as a `SkyCoord` in memory, cones by its k-d tree (`search_around_sky`)."""

from __future__ import annotations

import json

import astropy
import pyarrow as pa
import pyarrow.dataset
from astropy import units
from astropy.coordinates import SkyCoord, search_around_sky

from ..catalogue import TableFiles
from .base import Contender


class Astropy(Contender):
    """The field's library, as in a notebook. It has nothing on disk: its load is reading and building the tree."""

    rows: pa.Table | None = None

    def version(self) -> str:
        return str(astropy.__version__)

    def load(self, table: TableFiles) -> int | None:
        self.rows = pyarrow.dataset.dataset(table.files).to_table().combine_chunks()
        ra, dec = (self.rows.column(name).to_numpy() for name in (table.ra, table.dec))
        self.positions = SkyCoord(ra * units.deg, dec * units.deg)
        # The first search builds the tree and keeps it with the positions.
        self._cone(float(ra[0]), float(dec[0]), 1e-6)
        return None

    def bytes_on_disk(self) -> dict[str, int]:
        return {}

    def start(self) -> None:
        if self.rows is None:
            self.load(self.setup.tables["Object"])

    def _cone(self, ra: float, dec: float, radius: float) -> pa.Table:
        assert self.rows is not None
        centre = SkyCoord([ra] * units.deg, [dec] * units.deg)
        found = search_around_sky(centre, self.positions, radius * units.deg)[1]
        return self.rows.take(pa.array(found))

    def ask(self, text: str) -> object:
        return self._cone(**json.loads(text))

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, pa.Table)
        return answer

    def stop(self) -> None:
        self.rows = None
