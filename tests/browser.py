"""A browser that nobody sees: Chromium, told what to do by the WebDriver protocol.

Source: W3C *WebDriver*, the table of endpoints.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

# How an element is called in the protocol's messages.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
CTRL = "\ue009"
ENTER = "\ue007"
# What the driver says of elements that a page does not have yet, or no longer has since another page comes.
ABSENT = ("no such element", "stale element reference")


class AbsentError(AssertionError):
    """The page has no such element now."""


class Page:
    """The page that the browser shows."""

    def __init__(self, driver: str) -> None:
        # Root has no sandbox; a small /dev/shm would not do.
        options = {"args": ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]}
        logging = {"goog:loggingPrefs": {"browser": "ALL"}}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, **logging}}
        self.driver = driver
        self.session = f"{driver}/session"
        self.session += "/" + str(self.tell("", {"capabilities": wanted})["sessionId"])  # type: ignore[index]

    def tell(self, command: str, body: dict[str, object] | None = None, method: str | None = None) -> object:
        """The value of a command's answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.session + command, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            kind = AbsentError if json.loads(said)["value"]["error"] in ABSENT else AssertionError
            raise kind(f"{command}: {said}") from None

    def open(self, url: str) -> None:
        """Goes to a page."""
        self.tell("/url", {"url": url})

    def url(self) -> str:
        """Where it is."""
        return str(self.tell("/url"))

    def find(self, selector: str) -> str:
        """An element."""
        found = self.tell("/element", {"using": "css selector", "value": selector})
        assert isinstance(found, dict)
        return f"/element/{found[ELEMENT]}"

    def text(self, selector: str) -> str:
        """What is to be read of an element."""
        return str(self.tell(f"{self.find(selector)}/text"))

    def click(self, selector: str) -> None:
        """Clicks on it."""
        self.tell(f"{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Types a text in the place of what is in a field."""
        field = self.find(selector)
        self.tell(f"{field}/clear", {})
        self.tell(f"{field}/value", {"text": text})

    def press(self, selector: str, keys: str) -> None:
        """Presses keys in a field."""
        self.tell(f"{self.find(selector)}/value", {"text": keys})

    def run(self, script: str) -> object:
        """What a script in the page returns."""
        return self.tell("/execute/sync", {"script": script, "args": []})

    def wait(self, selector: str, pattern: str, seconds: float = 60) -> str:
        """Waits until the text of an element has a pattern."""
        seen = ""
        give_up = time.monotonic() + seconds
        while True:
            with contextlib.suppress(AbsentError):
                seen = self.text(selector)
                if re.search(pattern, seen):
                    return seen
            assert time.monotonic() < give_up, f"not within {seconds} s: {selector} has {pattern!r}; it has {seen!r}"
            time.sleep(0.05)

    def complaints(self) -> list[str]:
        """What the browser wrote into its console."""
        entries = self.tell("/se/log", {"type": "browser"})
        assert isinstance(entries, list)
        return [entry["message"] for entry in entries]


@contextlib.contextmanager
def browsing() -> Iterator[Page]:
    """A browser, if there is one."""
    program = shutil.which("chromedriver")
    if program is None or shutil.which("chromium") is None:
        pytest.skip("There is no Chromium with its driver: run scripts/setup browser.")
    driver = subprocess.Popen([program, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert driver.stdout is not None
        for line in driver.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                break
        else:
            raise AssertionError("the driver of the browser ended")
        page = Page(f"http://127.0.0.1:{found.group(1)}")
        yield page
        page.tell("", method="DELETE")
    finally:
        driver.terminate()
        driver.communicate(timeout=20)
