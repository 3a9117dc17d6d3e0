"""A real browser without a window, spoken to by WebDriver (W3C) and Chromium's own protocol."""

import base64
import json
import math
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Down": "\ue015",
    "Up": "\ue013",
    "Right": "\ue014",
    "Left": "\ue012",
    "End": "\ue010",
    "Home": "\ue011",
    "Control": "\ue009",
}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing() -> str | None:
    """Why there is no browser to test in; None if there is one."""
    if shutil.which("chromedriver") is None:
        return "no chromedriver (apt-get install chromium chromium-driver)"
    if not any(map(shutil.which, BROWSERS)):
        return f"none of {', '.join(BROWSERS)} is installed"
    return None


@dataclass(frozen=True)
class Browser:
    """One session; `call` is the whole protocol, the rest are words for it."""

    session: str

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return _call(f"{self.session}/{path}", method, body)

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self.call("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, page: Path, width: int = 1280, scheme: str = "light") -> None:
        self.look(width, scheme)
        self.call("POST", "url", {"url": page.as_uri()})

    def look(self, width: int, scheme: str, *, media: str = "screen") -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", media=media, features=features)

    def js(self, source: str, *arguments: Any) -> Any:
        return self.call("POST", "execute/sync", {"script": source, "args": list(arguments)})

    def wait_js(self, source: str, *arguments: Any) -> Any:
        return self.call("POST", "execute/async", {"script": source, "args": list(arguments)})

    def access_faults(self) -> tuple[int, list[Any]]:
        """How many rules of axe the page meets, and those that it breaks, with where."""
        axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
        source = (Path(axe.__file__).parent / "axe.min.js").read_text("utf-8")
        self.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        self.js(source + "; window.axe = axe;")
        met, broken = self.wait_js("""
          const done = arguments[arguments.length - 1];
          window.axe.run(document, { resultTypes: ['violations'] }).then((result) => done([
            result.passes.length,
            result.violations.map((each) => [each.id, each.nodes.slice(0, 3).map((n) => n.html)]),
          ]));
        """)
        return met, broken

    def press(self, *keys: str) -> None:
        """Press keys one after the other; `Control+End` holds the first."""
        actions = []
        for key in keys:
            held = [KEYS.get(each, each) for each in key.split("+")]
            actions += [{"type": "keyDown", "value": each} for each in held]
            actions += [{"type": "keyUp", "value": each} for each in reversed(held)]
        body = {"actions": [{"type": "key", "id": "keys", "actions": actions}]}
        self.call("POST", "actions", body)

    def write(self, selector: str, text: str) -> None:
        found = self.call("POST", "element", {"using": "css selector", "value": selector})
        self.call("POST", f"element/{found[ELEMENT]}/clear", {})
        self.call("POST", f"element/{found[ELEMENT]}/value", {"text": text})

    def focused(self) -> str:
        """What has the focus, as text."""
        return self.js("return document.activeElement.textContent.trim()")

    def log(self) -> list[dict[str, Any]]:
        return self.call("POST", "se/log", {"type": "browser"})

    def shot(self, height: float = math.inf) -> bytes:
        """The page as a PNG, from its top, in full or as far as a height."""
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        size = {"width": size["width"], "height": min(size["height"], height)}
        clip = {"x": 0, "y": 0, **size, "scale": 1}
        found = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])

    def spoken(self) -> list[tuple[str, str]]:
        """What a screen reader is given, in its order: each role with its name."""
        found = self.cdp("Accessibility.getFullAXTree")["nodes"]
        nodes = {each["nodeId"]: each for each in found}

        def walk(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
            if not node["ignored"]:
                yield node["role"]["value"], node.get("name", {}).get("value", "")
            for child in node["childIds"]:
                yield from walk(nodes[child])

        return list(walk(found[0]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        self.cdp("Emulation.setEmulatedMedia", media="", features=[])
        self.cdp("Emulation.clearDeviceMetricsOverride")
        return base64.b64decode(self.call("POST", "print", {"background": True}))


def _call(url: str, method: str, body: Any = None) -> Any:
    data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
    request = Request(  # noqa: S310  our own driver
        url, data, {"Content-Type": "application/json"}, method=method
    )
    with urlopen(request, timeout=60) as answer:  # noqa: S310  our own driver
        return json.load(answer)["value"]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser that cannot reach any network, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    driver = subprocess.Popen(
        [shutil.which("chromedriver"), f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(url)
        arguments = [
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--force-prefers-reduced-motion",
            "--hide-scrollbars",
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            arguments.append("--no-sandbox")
        options = {"args": arguments, "binary": next(filter(None, map(shutil.which, BROWSERS)))}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        body = {"capabilities": {"alwaysMatch": wanted}}
        session = _call(f"{url}/session", "POST", body)["sessionId"]
        found = Browser(f"{url}/session/{session}")
        yield found
        _call(found.session, "DELETE")
    finally:
        driver.terminate()
        driver.wait(10)


def _wait(url: str) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            if _call(f"{url}/status", "GET")["ready"]:
                return
        except (URLError, OSError):
            pass
        if time.monotonic() > end:
            raise TimeoutError("chromedriver does not answer")
        time.sleep(0.05)
