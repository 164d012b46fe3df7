"""LSDB: the catalogue imported into HATS, which are Parquet files by HEALPix pixel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lsdb
import pandas as pd
import pyarrow as pa
from dask.distributed import Client
from hats_import.catalog.arguments import ImportArguments
from hats_import.pipeline import pipeline_with_client

from ..catalogue import TableFiles
from .base import Contender, directory_size

PIXEL_ROWS = 1_000_000


class Lsdb(Contender):
    """The Rubin community's tool for whole catalogues in Python."""

    def version(self) -> str:
        return str(lsdb.__version__)

    def load(self, table: TableFiles) -> int | None:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
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
        return None

    def bytes_on_disk(self) -> dict[str, int]:
        return {"Object": directory_size(self.home / "Object")}

    def start(self) -> None:
        self.catalogue = lsdb.open_catalog(self.home / "Object", columns="all")

    def ask(self, text: str) -> object:
        cone = json.loads(text)
        found = self.catalogue.cone_search(cone["ra"], cone["dec"], radius_arcsec=cone["radius"] * 3600.0)
        return found.compute()

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, pd.DataFrame)
        frame = answer[self.setup.tables["Object"].columns]
        arrays = [pa.array(frame[name], from_pandas=True) for name in frame.columns]
        return pa.Table.from_arrays(arrays, names=list(frame.columns))

    def stop(self) -> None:
        self.catalogue = None
