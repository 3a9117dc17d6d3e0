"""Measure how soon `tunec lsp` answers an edit, and whether its memory grows during edits.

    python benchmarks/lsp.py [--edits 300] [--leak 10000] [FOLDER]

The server is a separate process, with which the benchmark communicates over stdio. Each edit of a
spec changes one of its numbers, so that it is planned again; it is answered when its diagnostics
are shown, so the pause after typing is part of the time. With FOLDER (any tree of configs), each of
its files is edited once too. `--leak` types so many edits, half of them incomplete, and prints the
resident memory meanwhile. Beside wall clock times stand those of the server's processor, which
depend less on other work on the machine.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "lsp"))
EXAMPLES = Path(__file__).parents[1] / "examples"
ENDINGS = (".json", ".yaml", ".yml", ".toml", ".sh", ".env")
WHOLE = 999


def shares(times: list[float]) -> str:
    """Median, 95th and 99th percentile and the worst, in ms."""
    cut = statistics.quantiles(times, n=100, method="inclusive")
    found = (cut[49], cut[94], cut[98], max(times))
    names = ("median", "95 %", "99 %", "worst")
    return ", ".join(
        f"{name} {each * 1000:.0f} ms" for name, each in zip(names, found, strict=True)
    )


def edited(editor: Any, file: str, texts: list[str]) -> list[float]:
    """Seconds until each text of an open file is answered."""
    found = []
    for text in texts:
        start = time.perf_counter()
        editor.type(file, text)
        found.append(time.perf_counter() - start)
    return found


def variants(text: str, count: int) -> list[str]:
    """A spec with `count` other sequence lengths, or with as many comments if it sets none."""
    words = text.split("sequence: ", 1)
    if len(words) == 1:
        return [f"{text}# {at}\n" for at in range(count)]
    digits = len(words[1]) - len(words[1].lstrip("0123456789"))
    base = int(words[1][:digits])
    return [f"{words[0]}sequence: {base + at % 512}{words[1][digits:]}" for at in range(count)]


def specs(editor: Any, edits: int) -> None:
    """Edits of every example, one after another."""
    files = sorted(EXAMPLES.glob("*/spec.yaml"))
    every: list[float] = []
    hints: list[float] = []
    busy = 0.0
    for each in files:
        name, text = str(each), each.read_text("utf-8")
        editor.open(name)
        edited(editor, name, variants(text, 3))
        before = processor(editor.pid)
        every += edited(editor, name, variants(text, max(edits // len(files), 2)))
        busy += processor(editor.pid) - before
        for _ in range(5):
            start = time.perf_counter()
            editor.ask("text_document_inlay_hint", name, range=_whole())
            hints.append(time.perf_counter() - start)
        editor.close(name)
    print(f"{len(every)} edits of {len(files)} specs: {shares(every)}")
    print(f"of a processor: {busy / len(every) * 1000:.0f} ms an edit")
    print(f"{len(hints)} requests for hints: {shares(hints)}")


def configs(editor: Any, folder: Path) -> None:
    """One edit of each file of a tree."""
    files = [each for each in sorted(folder.rglob("*")) if each.suffix in ENDINGS]
    every: list[float] = []
    for each in files:
        name, text = str(each), each.read_text("utf-8", "replace")
        editor.open(name, text)
        every += edited(editor, name, [f"{text}\n"])
        editor.close(name)
    print(f"{len(every)} edits of as many files of {folder}: {shares(every)}")


def leak(editor: Any, edits: int) -> None:
    """Print the resident memory during edits."""
    files = sorted(EXAMPLES.glob("*/spec.yaml"))
    texts = [each.read_text("utf-8") for each in files]
    for each, text in zip(files, texts, strict=True):
        editor.open(str(each), text)
    for at in range(edits + 1):
        if at % max(edits // 10, 1) == 0:
            print(f"{at} edits: {resident(editor.pid) / 2**20:.0f} MiB", flush=True)
        file, text = str(files[at % len(files)]), texts[at % len(files)]
        new = variants(text, at % 512 + 1)[-1]
        editor.type(file, new[: at * 7 % len(new)] if at % 2 else new)
    print(f"said in the log: {len(editor.log)}", *editor.log, sep="\n")


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(each.split()[1]) * 1024 for each in lines if each.startswith("VmRSS"))


def processor(pid: int) -> float:
    """Processor seconds that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _whole() -> Any:
    from lsprotocol.types import Position, Range

    return Range(Position(0, 0), Position(WHOLE, 0))


def main() -> None:
    """Print every measure."""
    from editor import Editor  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser()
    parser.add_argument("--edits", type=int, default=300)
    parser.add_argument("--leak", type=int, default=0)
    parser.add_argument("folder", nargs="?", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        editor = Editor(Path(folder))
        specs(editor, options.edits)
        if options.folder is not None:
            configs(editor, options.folder)
        if options.leak:
            leak(editor, options.leak)
        print(f"exit code {editor.leave()}")


if __name__ == "__main__":
    main()
