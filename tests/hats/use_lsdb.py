"""What LSDB makes of catalogues: a program of its own, since LSDB needs other packages than the tests.

    use_lsdb.py DOCUMENT

The document lists steps in JSON; the results are printed in JSON, one for each step.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lsdb
import pyarrow as pa
import pyarrow.parquet as pq
from hats.io.validation import is_valid_catalog

Step = dict[str, Any]


def opened(step: Step) -> Any:
    """The catalogue with all its columns."""
    return lsdb.open_catalog(step["catalogue"], columns="all")


def is_valid(step: Step) -> bool:
    """Whether everything in it agrees, by the authors' own check."""
    return bool(is_valid_catalog(step["catalogue"], strict=True))


def describe(step: Step) -> dict[str, object]:
    """What it says of itself."""
    catalogue = opened(step)
    info = catalogue.hc_structure.catalog_info
    pixels = [(pixel.order, pixel.pixel) for pixel in catalogue.get_healpix_pixels()]
    return {
        "name": info.catalog_name, "type": str(info.catalog_type), "rows": info.total_rows, "ra": info.ra_column, "dec": info.dec_column,
        "pixels": pixels, "columns": list(catalogue.columns),
    }


def skymap(step: Step) -> int:
    """The rows of all cells of the map."""
    from hats.io.skymap import read_skymap

    return int(read_skymap(opened(step).hc_structure, None).sum())


def rows(step: Step) -> int:
    """All rows, written to a file."""
    frame = opened(step).compute()
    table = pa.Table.from_pandas(frame.reset_index(), preserve_index=False)
    pq.write_table(table, step["output"])
    return len(frame)


def filtered(step: Step) -> list[int]:
    """The keys of rows that a condition selects."""
    return sorted(int(key) for key in opened(step).query(step["condition"]).compute()[step["key"]])


def cone(step: Step) -> list[int]:
    """The keys of the rows of a cone."""
    frame = opened(step).cone_search(*step["centre"], radius_arcsec=step["radius"] * 3600.0).compute()
    return sorted(int(key) for key in frame[step["key"]])


def crossmatch(step: Step) -> list[list[int]]:
    """The nearest row of another catalogue for each row, by keys."""
    other = lsdb.open_catalog(step["other"], columns="all")
    matches = opened(step).crossmatch(other, n_neighbors=1, radius_arcsec=step["radius"] * 3600.0, suffixes=("_a", "_b"))
    frame = matches.compute()
    left, right = f"{step['key']}_a", f"{step['other_key']}_b"
    return sorted([int(a), int(b)] for a, b in zip(frame[left], frame[right]))


def imported(step: Step) -> str:
    """A catalogue made of a Parquet file by hats-import."""
    from dask.distributed import Client
    from hats_import.catalog.arguments import ImportArguments
    from hats_import.pipeline import pipeline_with_client

    output = Path(step["catalogue"])
    arguments = ImportArguments(
        ra_column=step["ra"], dec_column=step["dec"], file_reader="parquet", input_file_list=[Path(step["file"])], output_artifact_name=output.name,
        output_path=output.parent, tmp_dir=output.parent, pixel_threshold=step["rows"], highest_healpix_order=6, progress_bar=False,
    )
    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        pipeline_with_client(arguments, client)
    return str(output)


STEPS = {step.__name__: step for step in (is_valid, describe, skymap, rows, filtered, cone, crossmatch, imported)}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    results = [STEPS[step["do"]](step) for step in json.loads(sys.argv[1])]
    print("RESULTS " + json.dumps(results, default=int))


if __name__ == "__main__":
    main()
