"""The checks of packages can fail: licences, origins, versions and advisories that are made up."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
REGISTRY = "registry+https://example.org/index"


def script(name: str) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for it.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


packages = script("check_packages")
advisories = script("check_advisories")


def package(name: str = "good", version: str = "1.0.0", **properties: object) -> dict[str, object]:
    """A package as cargo tells of it."""
    return {"name": name, "version": version, "license": "MIT", "source": REGISTRY, **properties}


def found(monkeypatch: pytest.MonkeyPatch, *told: dict[str, object]) -> list[str]:
    """What is wrong with packages beside some good ones."""
    monkeypatch.setattr(packages, "SEVERAL", {"twice": 2})
    good = [package(), package("other", license="MIT OR GPL-3.0-only"), package("twice", "1.0.0"), package("twice", "2.0.0")]
    return list(packages.complaints([*good, *told]))


def test_good_packages_are_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"license": "GPL-3.0-only"}, "GPL-3.0-only"),
        ({"license": "MIT AND AGPL-3.0-or-later"}, "AGPL"),
        ({"license": "LGPL-2.1-or-later"}, "LGPL"),
        ({"license": None}, "no licence that it names"),
        ({"source": "git+https://example.org/bad#abc"}, "comes from git+"),
        ({"source": "registry+https://elsewhere.org/index"}, "comes from registry+https://elsewhere.org"),
        ({"name": "good", "version": "2.0.0"}, "good is there 2 times (1, 2), not 1"),
        ({"name": "twice", "version": "3.0.0"}, "twice is there 3 times"),
    ],
)
def test_bad_packages_are_complained_of(monkeypatch: pytest.MonkeyPatch, told: dict[str, object], words: str) -> None:
    [complaint] = found(monkeypatch, package(**{"name": "bad", **told}))
    assert words in complaint


def row(**properties: str) -> dict[str, str]:
    """An advisory of the list."""
    usual = {"id": "RUSTSEC-2099-0001", "package": "bad", "kind": "vulnerability", "patched": ">= 1.2.3", "unaffected": "", "systems": ""}
    return {**usual, **properties}


@pytest.mark.parametrize(
    ("version", "patched", "unaffected", "systems", "is_concerned"),
    [
        ("1.2.2", ">= 1.2.3", "", "", True),
        ("1.2.3", ">= 1.2.3", "", "", False),
        ("1.2.3-rc.1", ">= 1.2.3", "", "", True),
        ("1.2.3+build.7", ">= 1.2.3", "", "", False),
        ("1.10.0", ">= 1.9", "", "", False),
        ("0.9.9", "", "", "", True),
        ("0.9.9", "", "< 1", "", False),
        ("1.5.0", ">= 1.2.3, < 1.4 || >= 1.6", "", "", True),
        ("1.3.0", ">= 1.2.3, < 1.4 || >= 1.6", "", "", False),
        ("0.3.25", "^0.3.24 || >= 0.4.2", "", "", False),
        ("0.4.1", "^0.3.24 || >= 0.4.2", "", "", True),
        ("0.12.37", "0.12.36", "", "", False),
        ("0.13.0", "0.12.36", "", "", True),
        ("0.0.4", "^0.0.3", "", "", True),
        ("1.4.9", "~1.4.2", "", "", False),
        ("1.5.0", "~1.4.2", "", "", True),
        ("1.4.2", "=1.4.2", "", "", False),
        ("1.4.3", "=1.4.2", "", "", True),
        ("1.0.0", "", "", "windows", False),
        ("1.0.0", "", "", "windows,linux", True),
    ],
)
def test_versions_are_compared_as_cargo_does(version: str, patched: str, unaffected: str, systems: str, is_concerned: bool) -> None:
    told = advisories.complaints([row(patched=patched, unaffected=unaffected, systems=systems)], [package("bad", version)], {}, "")
    assert [("bad" in it and "RUSTSEC-2099-0001" in it) for it in told] == [True] * is_concerned


def test_a_range_that_cannot_be_read_is_no_range_that_is_met() -> None:
    with pytest.raises(ValueError, match="no range"):
        list(advisories.complaints([row(patched="soon")], [package("bad")], {}, ""))


def test_accepted_advisories_have_to_be_there_and_their_reasons_to_hold() -> None:
    accepted = {"RUSTSEC-2099-0001": advisories.Accepted("it is never called", r"\bcall_it\b")}
    concerned = ([row()], [package("bad")], accepted)
    assert list(advisories.complaints(*concerned, "fn main() {}")) == []
    [complaint] = advisories.complaints(*concerned, "fn main() { call_it() }")
    assert "'call_it'" in complaint
    [complaint] = advisories.complaints([row()], [package("bad", "1.2.3")], accepted, "")
    assert "concerns no package any more" in complaint


ADVISORY = """```toml
[advisory]
id = "RUSTSEC-2099-0001"
package = "arrow"
date = "2099-01-01"
[affected]
os = ["linux"]
[versions]
patched = [">= 9999.0.0", "^0.1.2"]
```
# It is bad
"""
WITHDRAWN = ADVISORY.replace("0001", "0002").replace("date", 'withdrawn = "2099-02-02"\ndate')


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "check_advisories.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_list_is_made_of_the_database_and_checked_against(tmp_path: Path) -> None:
    database = tmp_path / "database"
    (database / "crates" / "arrow").mkdir(parents=True)
    for number, text in enumerate([ADVISORY, WITHDRAWN], 1):
        (database / "crates" / "arrow" / f"RUSTSEC-2099-000{number}.md").write_text(text)
    git = ["git", "-C", str(database), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    made = run("--make", database)
    assert made.returncode == 0, made.stderr
    path = tmp_path / "advisories.tsv"
    path.write_text(made.stdout)
    assert made.stdout.splitlines()[2:] == ["RUSTSEC-2099-0001\tarrow\tvulnerability\t>= 9999.0.0 || ^0.1.2\t\tlinux"]
    checked = run(path)
    assert checked.returncode == 1
    assert "has RUSTSEC-2099-0001 (vulnerability); >= 9999.0.0 or ^0.1.2 is free of it" in checked.stderr


def test_what_is_no_list_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "advisories.tsv"
    path.write_text("nothing\n")
    assert run(path).returncode != 0
    assert run(tmp_path / "none.tsv").returncode != 0
