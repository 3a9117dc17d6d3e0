"""The page that plans in a browser: the package itself under Pyodide, in a folder of static files.

    python -m docs.try_out --fetch         # fetches what it needs from npm and PyPI, once
    python -m docs.try_out --serve         # builds build/tryout, and serves it on this machine

Pyodide is the npm package `pyodide`; compiled dependencies are the wheels for WebAssembly that
their projects publish on PyPI (`docs/tryout/requirements.txt`, by digest). PyYAML publishes none:
its Python files are those of the running interpreter. All else is read from this repository.
"""

import argparse
import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from docs.readme import ROOT

from tunec.compiler.consumers.environments import default_cache
from tunec.schemas.hardware.catalogue import cluster_names, device_names
from tunec.schemas.models.catalogue import card_names
from tunec.targets.registry import TARGETS

SOURCE: Final = ROOT / "docs/tryout"
BUILT: Final = ROOT / "build/tryout"
PYODIDE: Final = "314.0.7"
INTEGRITY: Final = (
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
"""SHA-512 of the package, as in npm's registry."""
_RUNTIME: Final = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
)
_PLATFORM: Final = (
    *("--platform", "pyemscripten_2026_0_wasm32", "--implementation", "cp"),
    *("--python-version", "3.14", "--abi", "cp314"),
)
_PAGE: Final = ("index.html", "page.css", "page.js", "worker.js")
_LAYERS: Final = ("compiler", "schemas", "targets")
_FACE: Final = ("__init__.py", "__main__.py")
_COUNTS: Final = (1, 2, 4, 8)


class FileNotFetched(Exception):
    """A file that the page needs is not on this machine; the message gives the reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, build or serve; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.try_out")
    parser.add_argument("--fetch", action="store_true", help="fetch what it needs, and stop")
    parser.add_argument("--serve", action="store_true", help="serve what was built, until Ctrl-C")
    options = parser.parse_args(arguments)
    try:
        fetch()
    except FileNotFetched as reason:
        sys.stderr.write(f"the try-out page is left out: {reason}\n")
        return 0 if options.fetch else 1
    if not options.fetch:
        build(BUILT)
    if options.serve:
        serve(BUILT)
    return 0


# ── fetching ─────────────────────────────────────────────────────────────────────────────────────


def cache() -> Path:
    """The folder of fetched files; another release or requirement has another folder."""
    text = f"{PYODIDE} {INTEGRITY} {(SOURCE / 'requirements.txt').read_text('utf-8')}"
    return default_cache().parent / "tryout" / hashlib.sha256(text.encode()).hexdigest()[:24]


def fetch() -> None:
    """Fetch Pyodide and the wheels, if they are not here yet. Raises Unfetched."""
    if cache().is_dir():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFetched("npm, which has Pyodide, is not installed")
    cache().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache().parent) as temporary:
        folder = Path(temporary) / "all"
        folder.mkdir()
        _runtime(npm, folder)
        _wheels(folder)
        if not cache().is_dir():
            folder.rename(cache())


def _runtime(npm: str, folder: Path) -> None:
    _run([npm, "pack", "--silent", f"pyodide@{PYODIDE}"], folder)
    archive = folder / f"pyodide-{PYODIDE}.tgz"
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        raise FileNotFetched(f"{archive.name} is not the one that was tested: {found}")
    with tarfile.open(archive) as packed:
        for name in _RUNTIME:
            packed.extract(f"package/{name}", folder, filter="data")
    archive.unlink()


def _wheels(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    pinned = ["--require-hashes", "-r", str(SOURCE / "requirements.txt")]
    _run([*pip, *_PLATFORM, *pinned, "-d", "wheels"], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  our own words
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise FileNotFetched(f"{Path(command[0]).name}: {' '.join(last) or done.returncode}")


# ── building ─────────────────────────────────────────────────────────────────────────────────────


def build(folder: Path) -> None:
    """Write the page into a folder, with all files that it loads. Raises Unfetched."""
    if not cache().is_dir():
        raise FileNotFetched("`python -m docs.try_out --fetch` has not been run")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pyodide").mkdir(parents=True)
    for name in _RUNTIME:
        shutil.copy(cache() / "package" / name, folder / "pyodide" / name)
    for name in _PAGE:
        shutil.copy(SOURCE / name, folder / name)
    shutil.copy(ROOT / "compiler/review/report/style.css", folder / "report.css")
    (folder / "names.json").write_text(json.dumps(names()), "utf-8")
    _pack(folder / "packages.zip")


def names() -> dict[str, list[str]]:
    """The choices of the form: models, machines and targets."""
    counted = [f"{device}-x{count}" for device in device_names() for count in _COUNTS]
    return {
        "models": list(card_names()),
        "machines": [*cluster_names(), *counted],
        "targets": list(TARGETS),
    }


def _pack(archive: Path) -> None:
    """Write all Python packages of the page to one archive, with the same bytes each time."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for wheel in sorted((cache() / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as opened:
                for name in opened.namelist():
                    _add(packed, name, opened.read(name))
        for name, path in _own():
            _add(packed, name, path.read_bytes())


def _add(packed: zipfile.ZipFile, name: str, content: bytes) -> None:
    packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def _own() -> Iterator[tuple[str, Path]]:
    """The files of this repository, and PyYAML's, by their names in site-packages."""
    for layer in _LAYERS:
        for path in sorted((ROOT / layer).rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".md"):
                yield f"tunec/{path.relative_to(ROOT).as_posix()}", path
    for name in _FACE:
        yield f"tunec/{name}", ROOT / "src/tunec" / name
    yield "tunec_page/answers.py", SOURCE / "answers.py"
    for file in distribution("PyYAML").files or ():
        if file.parts[0] == "yaml" and file.suffix == ".py":
            yield file.as_posix(), Path(str(file.locate()))


# ── serving ──────────────────────────────────────────────────────────────────────────────────────


def serve(folder: Path, port: int = 8000) -> None:
    """Serve the page only to this machine, until Ctrl-C."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        sys.stderr.write(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)\n")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("\n")


if __name__ == "__main__":
    sys.exit(main())
