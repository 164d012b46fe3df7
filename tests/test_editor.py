"""The page on which statements are written in a browser, as a person uses it in Chromium."""

from __future__ import annotations

import csv
import io
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from browser import CTRL, ENTER, Page, browsing
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import load_stars_and_bands
from test_users import PASSWORD, must

STARS = 1_300
STATEMENT = "#statement"
STATE = "#state"
NEVER_ENDS = "SELECT SUM(a.id) FROM Star a, Star b, Star c, Star d"


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return load_stars_and_bands(meridian, tmp_path_factory.mktemp("editor"), STARS)


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    with serving(meridian, data) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with browsing() as page:
        yield page


@pytest.fixture
def page(browser: Page, server: Server) -> Iterator[Page]:
    """The editor as one comes to it."""
    browser.open("about:blank")
    browser.open(server.url("/editor"))
    browser.wait("#tables", "Star")
    yield browser
    # What the browser forbids, as of the page's policy, and what the script did not expect.
    complaints = [told for told in browser.complaints() if "Content Security Policy" in told or "Uncaught" in told]
    assert not complaints


def table(page: Page) -> list[list[str]]:
    """The cells of the result, its heading first."""
    rows = page.run("return [...document.querySelectorAll('#rows tr')].map(row => [...row.cells].map(cell => cell.textContent))")
    assert isinstance(rows, list)
    return rows


def run(page: Page, statement: str, pattern: str = "COMPLETED") -> list[list[str]]:
    """Runs a statement and waits for its end."""
    page.type(STATEMENT, statement)
    page.click("#run")
    page.wait(STATE, pattern)
    if pattern == "COMPLETED":
        page.wait("#rows", ".")
    return table(page)


def test_the_page_has_what_it_names(server: Server) -> None:
    """And lets no other site into it."""
    for path, kind in (("/editor", "text/html"), ("/editor/script.js", "text/javascript"), ("/editor/style.css", "text/css")):
        with urllib.request.urlopen(server.url(path), timeout=20) as answer:
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith(kind)
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        if path == "/editor":
            assert set(re.findall(r'(?:src|href)="([^"]+)"', text)) == {"./", "editor/style.css", "editor/script.js"}
    with urllib.request.urlopen(server.url("/"), timeout=20) as overview:
        assert 'href="editor"' in overview.read().decode()


def test_a_statement_is_run(page: Page, server: Server) -> None:
    """Values are shown as they are: large integers exactly, NULL apart from an empty text, and texts as texts."""
    statement = (
        "SELECT 9223372036854775807 AS b, NULL AS n, '' AS e, '<b>bold</b>' AS h, 'a, \"b\"\nc' AS t, -1.5 AS d, id FROM Star WHERE id < 2 ORDER BY id"
    )
    heading, *rows = run(page, statement)
    assert heading == ["b", "n", "e", "h", "t", "d", "id"]
    assert rows == [["9223372036854775807", "NULL", "", "<b>bold</b>", 'a, "b"\nc', "-1.5", str(n)] for n in range(2)]
    assert page.run("return [...document.querySelectorAll('#rows td.null')].length") == 2
    link = page.run("return document.querySelector('#files a').href")
    with urllib.request.urlopen(str(link), timeout=20) as answer:
        assert len(list(csv.reader(io.StringIO(answer.read().decode())))) == 3


def test_keys_run_a_statement(page: Page) -> None:
    """Ctrl and Enter."""
    page.type(STATEMENT, "SELECT COUNT(*) AS n FROM Star")
    page.press(STATEMENT, CTRL + ENTER)
    page.wait(STATE, "COMPLETED")
    page.wait("#rows", ".")
    assert table(page) == [["n"], [str(STARS)]]


def test_mistakes_are_shown(page: Page) -> None:
    """With the place, and they leave with the next statement."""
    page.type(STATEMENT, "SELECT idd FROM Star")
    page.click("#run")
    said = page.wait("#error", "no column idd")
    assert "did you mean id?" in said and "^" in said
    assert run(page, "SELECT 1 AS one") == [["one"], ["1"]]
    assert page.text("#error") == ""


def test_adql_is_spoken(page: Page) -> None:
    """Where it is chosen."""
    page.run("document.getElementById('dialect').value = 'adql'")
    assert run(page, "SELECT TOP 2 id FROM sky.Star ORDER BY id") == [["id"], ["0"], ["1"]]


def test_rows_come_page_by_page(page: Page) -> None:
    """Five hundred at a time."""
    rows = run(page, "SELECT id FROM Star ORDER BY id")
    seen = [row for [row] in rows[1:]]
    for last in (1000, STARS):
        page.click("#later")
        page.wait("#shown", f"to {last:,}")
        seen += [row for [row] in table(page)[1:]]
    assert seen == [str(n) for n in range(STARS)]
    assert page.run("return document.getElementById('later').disabled") is True
    page.click("#earlier")
    page.wait("#shown", "501 to 1,000")


def test_a_query_is_cancelled(page: Page) -> None:
    """While it runs, and its rows so far are offered until then."""
    page.type(STATEMENT, NEVER_ENDS)
    page.click("#run")
    page.wait(STATE, "EXECUTING.* pieces")
    page.click("#cancel")
    page.wait(STATE, "ABORTED")
    assert "cancelled" in page.wait("#error", ".")
    assert page.run("return document.getElementById('cancel').disabled") is True


def test_former_queries_are_found(page: Page, server: Server) -> None:
    """In the list, with what was typed; and the address of a page is that of its query."""
    run(page, "SELECT 41 + 1 AS answer")
    address = page.url()
    assert re.search(r"#query=\d+$", address)
    run(page, "SELECT 'another' AS one")
    page.run("[...document.querySelectorAll('#history tr')].find(row => row.textContent.includes('answer')).querySelector('button').click()")
    wait_until(lambda: table(page) == [["answer"], ["42"]], 30, "the former result is shown")
    assert page.run("return document.getElementById('statement').value") == "SELECT 41 + 1 AS answer"
    page.open("about:blank")
    page.open(address)
    wait_until(lambda: table(page) == [["answer"], ["42"]], 30, "the address shows it")


def test_tables_are_looked_up(page: Page) -> None:
    """By parts of their names; with their columns, which are put into the statement, and their first rows."""
    page.type("#wanted", "sta")
    shown = "return [...document.querySelectorAll('#tables details[data-name]')].filter(it => !it.hidden).map(it => it.dataset.name)"
    assert page.run(shown) == ["sky.star"]
    page.click("details[data-name='sky.star'] summary")
    page.wait("details[data-name='sky.star']", "bigint")
    page.click("details[data-name='sky.star'] li:nth-child(2) button")
    assert page.run("return document.getElementById('statement').value") == "ra"
    page.click("details[data-name='sky.star'] > button")
    page.wait(STATE, "COMPLETED, 10 rows")
    page.wait("#rows", ".")
    assert table(page)[0] == ["id", "ra", "dec", "version"]


def test_explain_runs_nothing(page: Page) -> None:
    """It shows the plan."""
    page.type(STATEMENT, "SELECT COUNT(*) FROM Star WHERE ra > 1")
    page.click("#explain")
    assert "pieces" in page.wait("#rows", "summary|interactive")


def log_in(page: Page, server: Server, name: str) -> None:
    """By the form, and goes to the editor."""
    page.open(server.url("/login"))
    page.type("input[name=user]", name)
    page.type("input[name=password]", PASSWORD)
    page.click("form[action='/login'] button")
    page.wait("h1", "Meridian")
    page.open(server.url("/editor"))


def test_readers_see_what_is_theirs(meridian: Meridian, data: Path, tmp_path: Path, browser: Page) -> None:
    """After a login by the form, as everywhere."""
    own_data = Path(shutil.copytree(data, tmp_path / "data"))
    must(meridian, own_data, "add", "ann", password=PASSWORD)
    must(meridian, own_data, "grant", "ann", "--read", "sky.Band")
    with serving(meridian, own_data) as server:
        log_in(browser, server, "ann")
        browser.wait("#user", "ann")
        browser.wait("#tables", "Band")
        assert "Star" not in browser.text("#tables")
        assert run(browser, "SELECT COUNT(*) AS n FROM Band")[0] == ["n"]
        browser.type(STATEMENT, "SELECT COUNT(*) FROM Star")
        browser.click("#run")
        browser.wait("#error", "may not read")


def own(page: Page, table: str) -> str:
    """Opens the entry of one of the user's own tables, and says how it is found."""
    page.wait("#own-tables", table)
    page.run(f"document.querySelector('[data-own=\"{table}\"]').open = true")
    return f"[data-own='{table}']"


def press_in(page: Page, entry: str, name: str) -> None:
    """Presses a button of an entry by what stands on it."""
    page.run(f"[...document.querySelectorAll(\"{entry} button\")].find(one => one.textContent === '{name}').click()")


def test_tables_of_ones_own(meridian: Meridian, data: Path, tmp_path: Path, browser: Page) -> None:
    """Made of a file and of a result, changed, shared and dropped, by nothing but the page."""
    own_data = Path(shutil.copytree(data, tmp_path / "data"))
    for name in ("ann", "bob"):
        must(meridian, own_data, "add", name, password=PASSWORD)
        must(meridian, own_data, "grant", name, "--read", "sky")
    positions = tmp_path / "positions.csv"
    positions.write_text("number,ra,dec\n1,10.5,20.5\n2,11,21\n", encoding="utf-8")
    with serving(meridian, own_data) as server:
        log_in(browser, server, "ann")
        browser.wait("#own", "Your tables")
        browser.press("#file", str(positions))
        browser.type("#file-table", "positions")
        browser.click("#upload-form button")
        browser.wait(STATE, r"ann.positions has 2 rows")
        browser.wait("#own-tables", r"ann\.positions")
        browser.wait("#tables", "ann")
        # What a query finds is kept.
        browser.run("document.querySelector('#database').value = 'sky'")
        run(browser, "SELECT id, ra FROM Star WHERE id < 5 ORDER BY id")
        browser.type("#kept-name", "near")
        press_in(browser, "#files", "Keep as a table")
        browser.wait("#own-tables", r"ann\.near")
        browser.wait(STATE, "COMPLETED")
        # Statements change it.
        assert browser.run("return document.querySelector('#database').value") == "sky"
        for statement, told in [
            ("DELETE FROM ann.near WHERE id = 0", "1 row changed"),
            ("INSERT INTO ann.near VALUES (70, 1.5), (71, 2.5)", "2 rows changed"),
            ("CREATE TABLE ann.more (id INT)", "0 rows changed"),
        ]:
            browser.type(STATEMENT, statement)
            browser.click("#run")
            browser.wait(STATE, told)
        browser.wait("#own-tables", r"ann\.more")
        assert run(browser, "SELECT id FROM ann.near ORDER BY id") == [["id"], *([str(n)] for n in (1, 2, 3, 4, 70, 71))]
        for statement, error in [("DROP TABLE Star", "own database"), ("KILL 7", "KILL is for connections"), ("INSERT INTO ann.more VALUES ('x')", "x")]:
            browser.type(STATEMENT, statement)
            browser.click("#run")
            browser.wait("#error", error)
        # A colleague reads it.
        with server.connect(user="bob", password=PASSWORD) as bob, bob.cursor() as cursor:
            entry = own(browser, "ann.near")
            browser.type(f"{entry} input", "bob")
            press_in(browser, entry, "Let read")
            browser.wait(STATE, "bob may read ann.near")
            cursor.execute("SELECT COUNT(*) FROM ann.near")
            assert cursor.fetchall() == ((6,),)
            press_in(browser, entry, "Take back")
            browser.wait(STATE, "is taken back")
            with pytest.raises(pymysql.err.MySQLError):
                cursor.execute("SELECT COUNT(*) FROM ann.near")
            browser.type(f"{entry} input", "nobody")
            press_in(browser, entry, "Let read")
            browser.wait("#error", "no user and no role nobody")
        press_in(browser, own(browser, "ann.more"), "Drop")
        assert browser.run("return document.querySelector('#statement').value") == "DROP TABLE `ann`.`more`"
        browser.click("#run")
        browser.wait(STATE, "0 rows changed")
        assert "ann.more" not in browser.text("#own-tables")
        complaints = [told for told in browser.complaints() if "Content Security Policy" in told or "Uncaught" in told]
        assert not complaints
