"""SciPy: unit vectors in memory, pairs and matches by its k-d tree (`cKDTree`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import scipy
from scipy.spatial import cKDTree

from ..catalogue import TableFiles
from .base import Setup
from .tool import Tool, colours, counted, in_box


class SciPy(Tool):
    """What astronomers write themselves for large pair counts. It has nothing on disk.

    The trees of the two catalogues of the crossmatch are kept. That of a box of Object is built when it is asked for.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.trees: dict[str, cKDTree] = {}

    def version(self) -> str:
        return str(scipy.__version__)

    def load(self, table: TableFiles) -> int | None:
        if table.name == "Object":
            columns = [table.ra, table.dec, "gFlux_PS", "rFlux_PS"]
            self.rows = pyarrow.dataset.dataset(table.files).to_table(columns=columns).combine_chunks()
            self.ra, self.dec = self.rows.column(table.ra).to_numpy(), self.rows.column(table.dec).to_numpy()
        else:
            rows = pyarrow.dataset.dataset(table.files).to_table(columns=[table.ra, table.dec])
            vectors = unit_vectors(rows.column(table.ra).to_numpy(), rows.column(table.dec).to_numpy())
            self.trees[table.name] = cKDTree(vectors)
        return None

    def bytes_on_disk(self) -> dict[str, int]:
        return {}

    def start(self) -> None:
        for table in self.setup.tables.values():
            self.load(table)

    def pairs(self, work: str, radius: float, colour: float, **box: float) -> pa.Table:
        """Ordered pairs within a radius in degrees, each row with itself too."""
        inside = in_box(self.ra, self.dec, box)
        tree = cKDTree(unit_vectors(self.ra[inside], self.dec[inside]))
        reach = chord(radius)
        if work == "count":
            return counted(int(tree.count_neighbors(tree, reach)))
        # Every pair once: not each row with itself.
        one, other = tree.query_pairs(reach, output_type="ndarray").T
        if work == "sum":
            lengths = np.linalg.norm(tree.data[one] - tree.data[other], axis=1)
            return counted(2 * len(one) + tree.n, float(2 * separations(lengths).sum()))
        of_row = colours(self.rows.filter(pa.array(inside)))
        alike = int((np.abs(of_row[one] - of_row[other]) < colour).sum())
        return counted(2 * alike + int(np.isfinite(of_row).sum()))

    def match(self, radius: float) -> pa.Table:
        """The nearest row of Infrared within a radius in degrees of each row of Optical."""
        optical, infrared = self.trees["Optical"], self.trees["Infrared"]
        lengths, _ = infrared.query(
            optical.data, distance_upper_bound=chord(radius), workers=self.setup.threads
        )
        found = lengths[np.isfinite(lengths)]
        return counted(len(found), float(separations(found).sum() * 3600))

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, pa.Table)
        return answer

    def stop(self) -> None:
        self.trees.clear()


def unit_vectors(ra: np.ndarray, dec: np.ndarray) -> np.ndarray:
    """Positions in degrees as rows of three numbers."""
    ra, dec = np.radians(ra), np.radians(dec)
    return np.column_stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])


def chord(degrees: float) -> float:
    """The straight distance of two unit vectors at an angle."""
    return float(2 * np.sin(np.radians(degrees) / 2))


def separations(chords: np.ndarray) -> np.ndarray:
    """Angles in degrees of straight distances."""
    return np.degrees(2 * np.arcsin(chords / 2))
