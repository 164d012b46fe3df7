"""`meridian sql` at a terminal: a prompt, with history, completion, commands and a pager."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meridian_cli import Meridian
from serving import SOON
from small_tables import DIRECTOR, write_lines, write_stars
from terminal import CTRL_C, CTRL_D, TAB, UP, Terminal, prompt

STARS = 3000


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two databases: stars in one, a small table in the other."""
    directory = tmp_path_factory.mktemp("prompt")
    meridian.load(directory / "data", "sky", "Star", write_stars(directory / "Star.csv", STARS), **DIRECTOR)
    names = write_lines(directory / "Filter.csv", ["1,u", "2,g"], header="filterId,filterName")
    meridian.load(directory / "data", "other", "Filter", names)
    return directory / "data"


@pytest.fixture
def open_prompt(meridian: Meridian, data: Path, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens prompts, which all have one home directory."""
    opened = []

    def open_one(*options: object, **env: str) -> Terminal:
        opened.append(prompt(meridian.binary, data, tmp_path, *options, **env))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


@pytest.fixture
def sky(open_prompt: Callable[..., Terminal]) -> Terminal:
    """A prompt in the database of the stars."""
    terminal = open_prompt("--db", "sky")
    terminal.wait_for("sky> ")
    return terminal


def test_a_statement_may_have_several_lines(sky: Terminal) -> None:
    sky.enter("-- how many there are")
    sky.wait_for("sky> ")
    sky.enter("SELECT count(*) AS stars")
    sky.wait_for("  -> ")
    sky.enter("FROM Star -- it's all;")
    sky.wait_for("  -> ")
    sky.enter("WHERE 'it''s")
    sky.wait_for("  '> ")
    sky.enter(";' <> '' /* not")
    sky.wait_for("  *> ")
    sky.enter("yet; */;")
    assert str(STARS) in sky.wait_for("1 row in ")
    sky.wait_for("sky> ")
    sky.enter("\\q")
    assert sky.wait_for_end() == 0


def test_an_error_keeps_the_prompt(sky: Terminal) -> None:
    sky.enter("SELECT raa FROM Star;")
    assert "did you mean ra?" in sky.wait_for("^^^")
    sky.wait_for("sky> ")
    sky.enter("SELECT 41 + 1 AS answer;")
    sky.wait_for("42")
    sky.wait_for("sky> ")
    sky.press(CTRL_D)
    assert sky.wait_for_end() == 0


def test_ctrl_c_clears_the_line_and_ends_the_running_statement_alone(sky: Terminal) -> None:
    sky.enter("SELECT 'a text")
    sky.wait_for("  '> ")
    sky.press("more" + CTRL_C)
    sky.wait_for("sky> ")
    sky.enter("SELECT sum(a.id) FROM Star a, Star b, Star c;")
    sky.wait_for("Star c;")
    time.sleep(0.5)
    begun = time.monotonic()
    sky.press(CTRL_C)
    sky.wait_for("cancelled")
    sky.wait_for("sky> ")
    assert time.monotonic() - begun < SOON
    sky.enter("SELECT 41 + 1 AS answer;")
    sky.wait_for("42")
    sky.wait_for("sky> ")


def test_commands_tell_what_there_is(sky: Terminal) -> None:
    sky.enter("\\d")
    listed = sky.wait_for("sky> ")
    assert "Star" in listed and "director" in listed and "Filter" not in listed
    sky.enter("\\d Star")
    described = sky.wait_for("3,000 rows")
    assert "version" in described and "key id, position ra, dec" in described
    sky.wait_for("sky> ")
    sky.enter("\\l")
    listed = sky.wait_for("information_schema")
    assert "sky" in listed and "other" in listed
    sky.wait_for("sky> ")
    sky.enter("use nowhere;")
    sky.wait_for("databases here: other, sky")
    sky.wait_for("sky> ")
    sky.enter("use other;")
    sky.wait_for("other> ")
    sky.enter("SELECT filterName FROM Filter WHERE filterId = 2;")
    sky.wait_for("1 row in ")
    sky.wait_for("other> ")
    sky.enter("\\?")
    sky.wait_for("leaves, as Ctrl-D does")
    sky.wait_for("other> ")
    sky.enter("\\nonsense")
    sky.wait_for("there is no command \\nonsense")
    sky.wait_for("other> ")


def test_without_a_database_names_need_one(open_prompt: Callable[..., Terminal]) -> None:
    terminal = open_prompt()
    terminal.wait_for("meridian> ")
    terminal.enter("\\d")
    listed = terminal.wait_for("meridian> ")
    assert "Star" in listed and "Filter" in listed
    terminal.enter("SELECT count(*) FROM other.Filter;")
    terminal.wait_for("1 row in ")
    terminal.wait_for("meridian> ")


def test_rows_as_blocks_and_no_times(sky: Terminal) -> None:
    sky.enter("\\x on")
    sky.wait_for("sky> ")
    sky.enter("SELECT 1 AS a, 2 AS b;")
    assert "a | 1" in sky.wait_for("b | 2")
    sky.wait_for("sky> ")
    sky.enter("\\x off")
    sky.wait_for("sky> ")
    sky.enter("\\timing off")
    sky.wait_for("sky> ")
    sky.enter("SELECT 1 AS a, 2 AS b;")
    shown = sky.wait_for("sky> ")
    assert "a | b" in shown and "1 row\n" in shown


def test_files_are_executed_and_written(sky: Terminal, tmp_path: Path) -> None:
    statements = tmp_path / "queries.sql"
    statements.write_text("-- two results\nSELECT 1 AS a;\nSELECT 2\nAS b")
    written = tmp_path / "out.txt"
    sky.enter(f"\\o {written}")
    sky.wait_for("sky> ")
    sky.enter(f"\\i {statements}")
    sky.wait_for("1 row in ")
    sky.wait_for("1 row in ")
    sky.wait_for("sky> ")
    assert written.read_text().split() == ["a", "-", "1", "b", "-", "2"]
    sky.enter("\\o")
    sky.wait_for("sky> ")
    statements.write_text("SELECT 1 AS a;\nSELECT nothing;\nSELECT 'never' AS c;\n")
    sky.enter(f"\\i {statements}")
    assert "never" not in sky.wait_for("queries.sql:2")
    sky.wait_for("sky> ")
    sky.enter("\\i nowhere.sql")
    sky.wait_for("cannot read nowhere.sql")
    sky.wait_for("sky> ")


def test_names_are_completed(sky: Terminal, tmp_path: Path) -> None:
    sky.press("SELECT count(*) FROM Sta" + TAB)
    sky.wait_for("FROM Star")
    sky.press(" WHERE vers" + TAB)
    sky.wait_for("version")
    sky.enter(" = 1;")
    assert str(STARS) in sky.wait_for("1 row in ")
    sky.wait_for("sky> ")
    (tmp_path / "a_long_name.sql").write_text("SELECT 7 * 6 AS answer;")
    sky.press(f"\\i {tmp_path}/a_lo" + TAB)
    sky.wait_for("a_long_name.sql")
    sky.enter("")
    sky.wait_for("42")
    sky.wait_for("sky> ")


def test_what_was_typed_is_kept_for_the_next_prompt(open_prompt: Callable[..., Terminal], tmp_path: Path) -> None:
    first = open_prompt("--db", "sky")
    first.wait_for("sky> ")
    first.enter("SELECT 6 * 7")
    first.wait_for("  -> ")
    first.enter("AS answer;")
    first.wait_for("1 row in ")
    first.wait_for("sky> ")
    first.enter("\\q")
    assert first.wait_for_end() == 0
    kept = tmp_path / "state" / "meridian" / "history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    second = open_prompt("--db", "sky")
    second.wait_for("sky> ")
    # The last thing typed was \q.
    second.press(UP + UP)
    second.wait_for("AS answer;")
    second.enter("")
    second.wait_for("42")
    second.wait_for("sky> ")


def test_a_history_that_cannot_be_kept_is_no_obstacle(open_prompt: Callable[..., Terminal], tmp_path: Path) -> None:
    (tmp_path / "state").write_text("this is no directory")
    terminal = open_prompt("--db", "sky")
    terminal.wait_for("what is typed is not kept in")
    terminal.wait_for("sky> ")
    terminal.enter("SELECT 41 + 1 AS answer;")
    terminal.wait_for("42")
    terminal.wait_for("sky> ")


def test_only_what_is_longer_than_the_screen_goes_to_the_pager(open_prompt: Callable[..., Terminal]) -> None:
    terminal = open_prompt("--db", "sky", PAGER="sed 's/^/paged:/'")
    terminal.wait_for("sky> ")
    terminal.enter("SELECT id FROM Star ORDER BY id LIMIT 5;")
    assert "paged:" not in terminal.wait_for("5 rows in ")
    terminal.wait_for("sky> ")
    terminal.enter("SELECT id FROM Star ORDER BY id LIMIT 50;")
    assert terminal.wait_for("50 rows in ").count("paged:") == 52
    terminal.wait_for("sky> ")


def test_a_pager_that_is_left_ends_the_result(open_prompt: Callable[..., Terminal]) -> None:
    terminal = open_prompt("--db", "sky", PAGER="head -1")
    terminal.wait_for("sky> ")
    terminal.enter("SELECT a.id FROM Star a, Star b;")
    terminal.wait_for("rows in ")
    terminal.wait_for("sky> ")
    terminal.enter("SELECT 41 + 1 AS answer;")
    terminal.wait_for("42")


def test_adqls_dialect_has_the_prompt_too(open_prompt: Callable[..., Terminal]) -> None:
    terminal = open_prompt("--db", "sky", "--dialect", "adql")
    terminal.wait_for("sky> ")
    terminal.enter('SELECT TOP 1 "id" + 41 AS "it')
    terminal.wait_for('  "> ')
    terminal.enter('" FROM Star WHERE id = 1;')
    terminal.wait_for("42")
    terminal.wait_for("sky> ")
    terminal.enter("use other;")
    terminal.wait_for("other> ")
