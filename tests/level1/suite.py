"""The test suite that the field publishes for its alert databases (`lsst.dax.apdb.tests`), on a Meridian server.

`run_suite` starts the server and says where it is, by the environment.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import unittest
from pathlib import Path
from typing import Any

from lsst.dax.apdb import ApdbConfig, ApdbTables, ApdbUpdateRecord, ReplicaChunk
from lsst.dax.apdb.pixelization import Pixelization
from lsst.dax.apdb.tests import ApdbSchemaUpdateTest, ApdbTest

import adapter

SCHEMA = Path(__file__).parent / "schema.yaml"
REPLICA = os.environ["LEVEL1_REPLICA"] == "yes"
# The level of the numbers by which the server finds rows.
HTM_LEVEL = 20
MOST_RANGES = 64

adapter.install()
numbers = itertools.count()


def create_database(schema_file: str, enable_replica: bool) -> str:
    """Makes an alert database with the command line, and gives its name."""
    name = f"suite_{os.getpid()}_{next(numbers)}"
    command = [os.environ["MERIDIAN_BIN"], "alerts", "create", name, "--data", os.environ["LEVEL1_DATA"], "--schema", schema_file]
    if enable_replica:
        command.append("--replica")
    if url := os.environ.get("LEVEL1_POSTGRES"):
        command += ["--postgres", url]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return name


class SuiteMixin:
    """How a database is made."""

    replica = REPLICA

    def make_instance(self, **kwargs: Any) -> ApdbConfig:
        settings = {"schema_file": str(SCHEMA), "ss_schema_file": "", "enable_replica": self.replica} | kwargs
        database = create_database(settings["schema_file"], settings["enable_replica"])
        return adapter.MeridianApdbConfig(url=os.environ["LEVEL1_URL"], database=database, **settings)


class MeridianApdbTest(SuiteMixin, ApdbTest, unittest.TestCase):
    """What pipelines call."""

    enable_replica = REPLICA

    def getDiaObjects_table(self) -> ApdbTables:
        return ApdbTables.DiaObjectLast

    def pixelization(self, config: ApdbConfig) -> Pixelization:
        return Pixelization("htm", HTM_LEVEL, MOST_RANGES)

    def store_update_records(self, apdb: adapter.MeridianApdb, records: list[ApdbUpdateRecord], chunk: ReplicaChunk) -> None:
        apdb.append_updates(records, chunk)

    def _count_after_reset_dedup(self, count_before: int) -> int:
        # What was stored stays.
        return count_before


class MeridianSchemaUpdateTest(SuiteMixin, ApdbSchemaUpdateTest, unittest.TestCase):
    """Schemas that change."""
