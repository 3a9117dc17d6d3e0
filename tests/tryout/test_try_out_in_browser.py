"""The page that plans in a browser, in one: the numbers are those of the command line."""

import json
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode

import pytest
from docs import try_out
from tests.review.browser import Browser, browser, missing

SPECS = (
    {
        "model": "llama-3.1-8b-instruct",
        "method": "lora",
        "hardware": "a100-80g-x8",
        "sequence": "2048",
    },
    {"model": "qwen3-8b", "method": "qlora", "hardware": "rtx-4090-x2", "sequence": "4096"},
    {"model": "llama-3.2-3b", "method": "full", "hardware": "h100-sxm-x4", "memory": "72GiB"},
)
LACKS = {
    "model": "llama-3.1-8b-instruct",
    "method": "full",
    "hardware": "p100-x1",
    "sequence": "2048",
}


def absent() -> str | None:
    """Why the page cannot be tried here."""
    if missing() is not None:
        return missing()
    return None if try_out.cache().is_dir() else "Pyodide was not fetched (just fetch)"


pytestmark = pytest.mark.skipif(absent() is not None, reason=absent() or "")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *told: object) -> None: ...


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tryout")
    try_out.build(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory, address) -> Browser:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        found.look(1280, "light")
        found.call("POST", "url", {"url": f"{address}#{urlencode(SPECS[0])}"})
        yield found


def settled(chromium: Browser) -> str:
    """The verdict, once the page has nothing more to do; each look takes ten seconds at most."""
    for _ in range(30):
        found = chromium.wait_js("""
          const done = arguments[arguments.length - 1];
          const end = performance.now() + 10_000;
          const look = () => {
            const told = document.getElementById('status').textContent;
            const waits = /^(loading|planning|ready)/.test(told);
            if (!waits) done(document.getElementById('verdict').textContent);
            else if (performance.now() > end) done(null);
            else setTimeout(look, 50);
          };
          look();
        """)
        if found is not None:
            return str(found)
    raise TimeoutError("the page does not settle")


def planned(folder: Path, spec: str) -> dict[str, float]:
    """What the command line says of a spec."""
    (folder / "spec.yaml").write_text(spec)
    command = [sys.executable, "-m", "tunec", "plan", "spec.yaml", "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {
        "required_bytes": found["memory"]["gpu"]["required_bytes"],
        "budget_bytes": found["memory"]["gpu"]["budget_bytes"],
        "step_seconds": found["time"]["step_seconds"],
    }


@pytest.mark.parametrize("fields", SPECS, ids=lambda fields: fields["hardware"])
def test_numbers_are_those_of_the_command_line(chromium, tmp_path, fields):
    chromium.js("location.hash = arguments[0]", urlencode(fields))
    assert settled(chromium).startswith("fits")
    shown, spec = chromium.js("""
      const found = { ...document.getElementById('verdict').dataset };
      return [found, document.getElementById('spec').textContent];
    """)
    numbers = {name: float(value) for name, value in shown.items()}
    assert numbers == pytest.approx(planned(tmp_path, spec), rel=1e-12), "Python 3.12 sums anew"
    assert all(value in spec for value in fields.values())
    assert chromium.js("return document.querySelectorAll('#memory-chart svg').length") > 0
    assert chromium.log() == []


def test_what_does_not_fit_is_told_with_the_sum(chromium):
    chromium.js("location.hash = arguments[0]", urlencode(LACKS))
    assert settled(chromium) == "There is no plan"
    told = chromium.js("return document.getElementById('faults').textContent")
    assert told.startswith("error[E0701]: nothing fits")
    assert "= sum: " in told
    assert chromium.js("return document.getElementById('charts').checkVisibility()") is False


def test_a_plan_is_made_by_keyboard_and_kept_in_the_link(chromium):
    chromium.js("location.hash = arguments[0]", urlencode(LACKS | {"target": "axolotl"}))
    settled(chromium)
    chromium.write("#hardware", "a100-80g-x8")
    assert chromium.js("return document.activeElement.id") == "hardware"
    chromium.press("Enter")
    assert settled(chromium).startswith("fits")
    assert chromium.focused().startswith("fits"), "the verdict is where the reader is next"
    link = chromium.js("return document.getElementById('link').hash")
    assert link == chromium.js("return location.hash")
    assert "hardware=a100-80g-x8" in link
    names = chromium.js("return [...document.querySelectorAll('summary')].map((e) => e.innerText)")
    assert "axolotl/axolotl.yaml" in names
    chromium.press("Tab")
    assert chromium.focused() == "A link to this plan"


def test_a_screen_reader_is_told_what_to_write_and_what_came_of_it(chromium):
    chromium.js("location.hash = arguments[0]", urlencode(SPECS[0]))
    verdict = settled(chromium)
    spoken = chromium.spoken()
    controls = {"textbox", "combobox", "button", "spinbutton", "checkbox", "searchbox"}
    names = [words for role, words in spoken if role in controls]
    assert len(names) > 5
    assert all(names)
    assert "status" in [role for role, _ in spoken], "what the page does is told while it does it"
    assert ("heading", verdict) in spoken
    assert [words for role, words in spoken if role == "image" and not words] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fields", [SPECS[0], LACKS], ids=["fits", "lacks"])
def test_axe_finds_nothing(chromium, scheme, fields):
    chromium.look(390, scheme)
    chromium.js("location.hash = arguments[0]", urlencode(fields))
    settled(chromium)
    assert chromium.js("return document.documentElement.scrollWidth") <= 390
    found = chromium.access_faults()
    assert found[0] > 10
    assert found[1] == []
