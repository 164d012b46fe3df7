#!/usr/bin/env python3
"""Checks which crate depends on which.

- No crate of ours depends on one that comes later in LAYERS.
- `sky` pulls in none of the packages in TOO_HEAVY_FOR_SKY, at any distance.
- There is exactly one major version of each package in ONE_MAJOR_VERSION.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

LAYERS = ["heap", "sky", "metadata", "region-files", "result-formats", "catalog", "users", "store", "remote-files", "backup", "ingest", "synthesize", "sql", "engine", "hats", "piece-conformance", "queries", "cluster", "alerts", "server", "meridian", "load-generator"]
TOO_HEAVY_FOR_SKY = {"tokio", "datafusion", "sqlx", "arrow"}
ONE_MAJOR_VERSION = {"arrow", "arrow-array", "arrow-schema", "datafusion", "parquet"}


def metadata() -> dict:
    """What cargo knows of the workspace and everything that it depends on."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    root = Path(__file__).resolve().parent.parent
    return json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)


def short_name(package: str) -> str:
    """`meridian-sky` is `sky`."""
    return package.removeprefix("meridian-")


def layer_violations(members: list[dict]) -> list[str]:
    """Dependencies that point upwards, of any kind (a test, too, tests its crate with what lies below it)."""
    found = []
    ours = {package["name"] for package in members}
    for package in members:
        name = short_name(package["name"])
        if name not in LAYERS:
            found.append(f"{name} has no place in the order of crates: give it one in {Path(__file__).name}")
            continue
        below = LAYERS[: LAYERS.index(name)]
        for dependency in package["dependencies"]:
            other = short_name(dependency["name"])
            if dependency["name"] in ours and other not in below:
                found.append(f"{name} depends on {other}, which is not below it (order: {', '.join(LAYERS)})")
    return found


def reachable(resolve: dict, start: str) -> set[str]:
    """All packages that a package is built from; test and build dependencies do not count."""
    edges = {}
    for node in resolve["nodes"]:
        normal = [edge for edge in node["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
        edges[node["id"]] = [edge["pkg"] for edge in normal]
    seen, waiting = set(), [start]
    while waiting:
        package = waiting.pop()
        if package not in seen:
            seen.add(package)
            waiting.extend(edges[package])
    return seen


def sky_violations(known: dict) -> list[str]:
    """Heavy packages below `sky`."""
    names = {package["id"]: package["name"] for package in known["packages"]}
    sky = next(package for package, name in names.items() if name == "meridian-sky")
    below = {names[package] for package in reachable(known["resolve"], sky)}
    return [f"sky pulls in {name}: it must stay free of it" for name in sorted(below & TOO_HEAVY_FOR_SKY)]


def version_violations(packages: list[dict]) -> list[str]:
    """Packages of which there are several major versions, or none."""
    versions = defaultdict(set)
    for package in packages:
        if package["name"] in ONE_MAJOR_VERSION:
            versions[package["name"]].add(package["version"].split(".")[0])
    return [
        f"{name} has {len(versions[name])} major versions ({', '.join(sorted(versions[name]))}), not 1"
        for name in sorted(ONE_MAJOR_VERSION)
        if len(versions[name]) != 1
    ]


def main() -> int:
    known = metadata()
    members = [package for package in known["packages"] if package["id"] in known["workspace_members"]]
    violations = layer_violations(members) + sky_violations(known) + version_violations(known["packages"])
    for violation in violations:
        print(f"dependencies: {violation}", file=sys.stderr)
    if not violations:
        print(f"dependencies: {len(members)} crates keep to the order, sky is light, one arrow and one datafusion")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
