"""What astropy's reader of VOParquet sees of a file. Writes one JSON object."""

from __future__ import annotations

import json
import sys

from astropy.table import Table

table = Table.read(sys.argv[1], format="parquet.votable")
columns = [[name, str(table[name].unit or ""), table[name].meta.get("ucd", "")] for name in table.colnames]
print("SEEN " + json.dumps({"columns": columns, "rows": len(table), "last": [float(value) for value in table[-1]]}))
