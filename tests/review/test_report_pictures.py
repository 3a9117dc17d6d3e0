"""The report as somebody has looked at it: pictures in four widths and both colour schemes.

`pytest tests/review/test_report_pictures.py --bless` keeps the pictures of today: look at them.
"""

import io
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.review.browser import missing
from tests.review.reports import FIVE, LACKS, fleet, page_of, planned, written

KEPT = Path(__file__).parent / "pictures"
FONT = "DejaVu Sans"
HEIGHT = 1200
"""Pixels from the top of a page: its verdict and its first charts."""
SMALLER = 4
BLOCK = 8
"""Blocks of a picture made smaller are compared: 32 pixels of the page, two lines of text."""
FAR = 24
"""Of 255: a block of text differs by less when its words or numbers are others."""
SHARE = 0.02


def absent() -> str | None:
    """Why no picture can be compared here."""
    if missing() is not None:
        return missing()
    if shutil.which("fc-match") is None:
        return "no fc-match tells the font of the pages (apt-get install fontconfig)"
    font = subprocess.run(["fc-match", "-f", "%{family}", "sans"], capture_output=True, text=True)
    return None if font.stdout == FONT else f"the pictures are kept in {FONT}, not {font.stdout}"


pytestmark = pytest.mark.skipif(absent() is not None, reason=absent() or "")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = {
        "fits": page_of(planned(FIVE)),
        "lacks": page_of(planned(LACKS)),
        "fleet": fleet(6, 30),
    }
    return written(folder, texts)


def smaller(picture: bytes):
    """A picture that is kept: a quarter as wide and as high, in few colours."""
    from PIL import Image

    whole = Image.open(io.BytesIO(picture)).convert("RGB")
    return whole.resize((whole.width // SMALLER, whole.height // SMALLER), Image.Resampling.BOX)


def differing(one, other) -> float:
    """The share of blocks that are far from each other; all, of pictures of other sizes."""
    import numpy as np

    if one.size != other.size:
        return 1.0
    far = np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean(axis=2)
    rows, columns = (length // BLOCK for length in far.shape)
    blocks = far[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK)
    return float((blocks.mean(axis=(1, 3)) > FAR).mean())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 700, 1024, 1440])
@pytest.mark.parametrize("name", ["fits", "lacks", "fleet"])
def test_page_looks_as_it_did(chromium, pages, request, name, width, scheme):
    from PIL import Image

    file = KEPT / f"{name}-{width}-{scheme}.png"
    chromium.open(pages[name], width, scheme)
    found = smaller(chromium.shot(HEIGHT))
    if request.config.getoption("--bless"):
        KEPT.mkdir(exist_ok=True)
        found.quantize(32, dither=Image.Dither.NONE).save(file, optimize=True)
    kept = Image.open(file).convert("RGB")
    assert differing(found, kept) < SHARE


def test_what_a_reader_would_notice_is_noticed(chromium, pages):
    chromium.open(pages["fits"], 1024)
    before = smaller(chromium.shot(HEIGHT))
    for fault in (
        "document.querySelector('svg.chart').style.display = 'none'",
        "document.querySelector('svg.chart').style.opacity = '.3'",
        "document.querySelector('h1').style.marginTop = '3em'",
        "document.body.style.fontSize = '120%'",
    ):
        chromium.open(pages["fits"], 1024)
        chromium.js(fault)
        assert differing(smaller(chromium.shot(HEIGHT)), before) >= SHARE, fault
