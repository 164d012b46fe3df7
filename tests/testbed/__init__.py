"""The testbed: the same rows in a private MariaDB and in Meridian, the same statements asked of both.

`python3 -m testbed --help`, run from `tests/`, generates statements without end and writes the coverage table of docs/sql.md.
"""
