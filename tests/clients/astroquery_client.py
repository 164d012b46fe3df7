"""What astroquery's TapPlus sees of a service: queries, jobs, uploaded tables. Writes one JSON object.

Its `load_tables` is for ESA's archives alone: it ends with an error where a column has not the attribute `esatapplus:flags`, which the schemas of
the Virtual Observatory do not allow.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from astropy.table import Table
from astroquery.utils.tap.core import TapPlus

COUNT = "SELECT COUNT(*) AS n FROM sky.Star"
JOINED = "SELECT s.id, u.name FROM sky.Star AS s JOIN tap_upload.mine AS u ON s.id = u.number ORDER BY s.id"


def main(url: str) -> None:
    service = TapPlus(url=url)
    seen: dict[str, object] = {}
    seen["count"] = int(service.launch_job(COUNT).get_results()["n"][0])
    seen["json"] = int(service.launch_job(COUNT, output_format="json").get_results()["n"][0])
    job = service.launch_job_async(COUNT)
    seen["later"] = int(job.get_results()["n"][0])
    seen["phase"] = job.get_phase()
    seen["again"] = int(service.load_async_job(jobid=job.jobid).get_results()["n"][0])
    seen["listed"] = job.jobid in [listed.jobid for listed in service.list_async_jobs()]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "mine.vot"
        mine = Table({"number": [3, 5, 100_000], "name": ["three", "five", "none"]})
        mine.write(path, format="votable")
        for launch in (service.launch_job, service.launch_job_async):
            for resource, of in ((str(path), ""), (mine, " of a table in memory")):
                for output in ("votable", "csv"):
                    found = launch(JOINED, upload_resource=resource, upload_table_name="mine", output_format=output).get_results()
                    seen[f"{launch.__name__}{of} as {output}"] = [[int(row["id"]), str(row["name"])] for row in found]
    try:
        service.launch_job("SELECT nothing FROM sky.Star")
    except Exception as error:  # noqa: BLE001 - of whatever class, its sentence is what the user sees
        seen["mistake"] = str(error)
    print("SEEN " + json.dumps(seen))


main(sys.argv[1])
