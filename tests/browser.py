"""A real headless Chromium, told what to do through two pipes (its DevTools protocol)."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WAIT_S = 60
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

_FLAGS = (
    *("--headless", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--mute-audio", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--no-proxy-server"),
)
_PROBLEMS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")


def find_program() -> str | None:
    """The path of a Chromium on this machine."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One Chromium, with a profile of its own.

    Args:
        program: Its path.
        folder: Where it keeps its profile.
    """

    def __init__(self, program: str, folder: Path) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # Beyond 3 and 4, which they become in the child.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
        line = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", program, *_FLAGS, f"--user-data-dir={folder}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=high,
            start_new_session=True,
        )
        for descriptor in (theirs_in, theirs_out, *high):
            os.close(descriptor)
        self._out, self._in = ours_out, ours_in
        self._data = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End it and all its processes."""
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """What it answers."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        answer = self._wait_for(lambda found: found.get("id") == message["id"])
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for_event(self, method: str, session: str) -> None:
        """Wait for an event that comes, or came since the events were last cleared."""

        def is_it(event: dict[str, Any]) -> bool:
            return event.get("method") == method and event.get("sessionId") == session

        if not any(map(is_it, self.events)):
            self._wait_for(is_it)

    def _wait_for(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while True:
            message, zero, rest = self._data.partition(b"\0")
            if zero:
                self._data = rest
                found: dict[str, Any] = json.loads(message)
                if "method" in found:
                    self.events.append(found)
                if is_it(found):
                    return found
                continue
            left = deadline - time.monotonic()
            assert left > 0, "the browser did not answer"
            if select.select([self._in], [], [], left)[0]:
                more = os.read(self._in, 2**20)
                assert more, "the browser has ended"
                self._data += more

    @contextlib.contextmanager
    def page(
        self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False
    ) -> Iterator[Page]:
        """A page that is loaded, of a size and in light or dark."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            page = Page(self, session)
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.call(f"{domain}.enable")
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            page.call("Emulation.setEmulatedMedia", features=[scheme])
            page.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=False,
            )
            self.events.clear()
            page.call("Page.navigate", url=url)
            self.wait_for_event("Page.loadEventFired", session)
            yield page
        finally:
            self.call("Target.closeTarget", targetId=target)


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives, as JSON."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_until(self, expression: str) -> Any:
        """Its value once that is true."""
        deadline = time.monotonic() + WAIT_S
        while not (found := self.value(expression)):
            assert time.monotonic() < deadline, f"it did not come true: {expression}"
            time.sleep(0.03)
        return found

    def press(self, *keys: str) -> None:
        """Press keys by their names in JavaScript: "a", "Enter", "ArrowRight"."""
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
        for key in keys:
            text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
            code = codes.get(key, ord(key[0].upper()))
            for kind in ("keyDown", "keyUp"):
                more = text if kind == "keyDown" else {}
                self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    windowsVirtualKeyCode=code,
                    **more,
                )

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def problems(self) -> list[str]:
        """Errors and warnings on the console, and addresses that were asked for."""
        self.value("0")  # What happened before has been told by now.
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            method, params = event["method"], event["params"]
            if method in _PROBLEMS and params.get("type") not in ("log", "info", "debug"):
                found.append(json.dumps(params)[:600])
        return found

    def requests(self) -> list[str]:
        """Addresses that were asked for, but for `data:`."""
        self.value("0")
        urls = [
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event.get("method") == "Network.requestWillBeSent"
            and event.get("sessionId") == self._session
        ]
        return [url for url in urls if not url.startswith("data:")]
