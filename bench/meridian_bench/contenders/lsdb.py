"""LSDB: tables imported into HATS, which are Parquet files by HEALPix pixel."""

from __future__ import annotations

import shutil
from pathlib import Path

import lsdb
import pandas as pd
import pyarrow as pa
from dask.distributed import Client
from hats_import.catalog.arguments import ImportArguments
from hats_import.margin_cache.margin_cache_arguments import MarginCacheArguments
from hats_import.pipeline import pipeline_with_client

from ..catalogue import TableFiles
from .base import directory_size
from .tool import Tool, counted

PIXEL_ROWS = 1_000_000
# Rows so near to a pixel are known to its neighbours: without them a crossmatch would miss what lies across an edge.
MARGIN_ARCSECONDS = 5.0
# More objects than lie around any position of a list.
MOST_NEIGHBOURS = 20


class Lsdb(Tool):
    """The Rubin community's tool for whole catalogues in Python."""

    def version(self) -> str:
        return str(lsdb.__version__)

    def load(self, table: TableFiles) -> int | None:
        self.home.mkdir(parents=True, exist_ok=True)
        arguments = ImportArguments(
            ra_column=table.ra,
            dec_column=table.dec,
            file_reader="parquet",
            input_file_list=[Path(file) for file in table.files],
            output_artifact_name=table.name,
            output_path=self.home,
            tmp_dir=self.home,
            pixel_threshold=PIXEL_ROWS,
            highest_healpix_order=8,
            progress_bar=False,
        )
        workers = self.setup.threads
        with Client(n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=None) as client:
            pipeline_with_client(arguments, client)
            if table.name == self._right_side():
                pipeline_with_client(self._margin(table.name), client)
        return None

    def _right_side(self) -> str:
        """What is matched with: Infrared, or the objects where lists are matched with them."""
        return "Infrared" if "Infrared" in self.setup.tables else "Object"

    def _margin(self, name: str) -> MarginCacheArguments:
        """The margin cache that the right side of a crossmatch needs."""
        return MarginCacheArguments(
            input_catalog_path=self.home / name,
            output_artifact_name=f"{name}_margin",
            output_path=self.home,
            tmp_dir=self.home,
            margin_threshold=MARGIN_ARCSECONDS,
            progress_bar=False,
        )

    def bytes_on_disk(self) -> dict[str, int]:
        return {
            name: sum(directory_size(part) for part in self.home.glob(f"{name}*") if part.is_dir())
            for name in self.setup.tables
        }

    def start(self) -> None:
        margins = {self._right_side(): self.home / f"{self._right_side()}_margin"}
        self.catalogues = {
            name: lsdb.open_catalog(self.home / name, columns="all", margin_cache=margins.get(name))
            for name in self.setup.tables
        }

    def cone(self, ra: float, dec: float, radius: float) -> pd.DataFrame:
        """The rows of a cone, in degrees."""
        return self.catalogues["Object"].cone_search(ra, dec, radius_arcsec=radius * 3600.0).compute()

    def match(self, radius: float) -> pa.Table:
        """The nearest row of Infrared within a radius in degrees of each row of Optical."""
        optical, infrared = self.catalogues["Optical"], self.catalogues["Infrared"]
        matches = optical.crossmatch(
            infrared, n_neighbors=1, radius_arcsec=radius * 3600.0, suffixes=("_o", "_i"), require_right_margin=True
        )
        separations = matches["_dist_arcsec"].compute()
        return counted(len(separations), float(separations.sum()))

    def match_list(self, file: str, radius: float) -> pa.Table:
        """The numbers of a list's positions, read from a Parquet file, with the keys of all objects within a radius in degrees."""
        objects = self.setup.tables["Object"]
        # Neither a margin nor a map of the list is needed.
        positions = lsdb.from_dataframe(
            pd.read_parquet(file), ra_column="ra", dec_column="decl", margin_threshold=None, should_generate_moc=False
        )
        known = lsdb.open_catalog(
            self.home / "Object", columns=[objects.key, objects.ra, objects.dec], margin_cache=self.home / "Object_margin"
        )
        pairs = positions.crossmatch(
            known,
            n_neighbors=MOST_NEIGHBOURS,
            radius_arcsec=radius * 3600.0,
            suffixes=("_u", "_o"),
            suffix_method="all_columns",
            require_right_margin=True,
        )
        columns = ["number_u", f"{objects.key}_o"]
        return pa.Table.from_pandas(pairs[columns].compute(), preserve_index=False)

    def to_arrow(self, answer: object) -> pa.Table:
        if isinstance(answer, pa.Table):
            return answer
        assert isinstance(answer, pd.DataFrame)
        frame = answer[self.setup.tables["Object"].columns]
        arrays = [pa.array(frame[name], from_pandas=True) for name in frame.columns]
        return pa.Table.from_arrays(arrays, names=list(frame.columns))

    def stop(self) -> None:
        self.catalogues = {}
