"""A Chromium that shows one page, driven by its DevTools protocol over a pipe; it loads nothing but that page."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
# Each keeps Chromium from a host of its maker: for updates, for accounts, for lists of bad pages.
_OFFLINE = (
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"),
    *("--disable-default-apps", "--no-default-browser-check", "--proxy-server=127.0.0.1:9"),
)
_SECONDS = 60


class Browser:
    """One tab. Raises AssertionError for what the protocol refuses."""

    def __init__(self, program: str, folder: Path) -> None:
        to_browser, self._requests = os.pipe()
        self._answers, from_browser = os.pipe()
        # Chromium reads requests on 3 and writes answers on 4; no other number reaches it.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$0" "$@"'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, *options, *_OFFLINE, "--remote-debugging-pipe",
             f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._numbers, self._unread, self._session = itertools.count(1), b"", ""
        self.problems: list[str] = []
        """What the console of the page reported: errors, warnings, exceptions."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a request, and return its answer."""
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._requests, json.dumps(request).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def show(self, page: Path, *, width: int, dark: bool = False) -> None:
        """Load a page of this machine, as wide as so many pixels, and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.absolute().as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self) -> bytes:
        """Return the whole page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def close(self) -> None:
        """End the browser."""
        os.close(self._requests)
        try:
            self._process.wait(_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._answers)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            part = os.read(self._answers, 2**20)
            assert part, "the browser has ended"
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
            self.problems.append(parameters["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(parameters["exceptionDetails"].get("text")))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning"}:
            self.problems.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(("file:", "data:")):
            self.problems.append(f"loads {parameters['request']['url']}")


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Give a Chromium of this machine; skip where there is none."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is here")
    started = Browser(program, folder)
    try:
        yield started
    finally:
        started.close()


def different_lines(png: bytes) -> int:
    """Return how many lines of a picture differ from the one above them; none of one that is blank."""
    at, width, data = 8, 0, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        part = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width = int.from_bytes(part[:4], "big") * {2: 3, 6: 4}[part[9]] + 1
        elif kind == b"IDAT":
            data += part
        at += size + 12
    pixels = zlib.decompress(data)
    # A line that is filtered by the one above it, and equals it, is all zero but for its filter.
    return sum(any(pixels[start + 1 : start + width]) for start in range(width, len(pixels), width))
