"""Recorded answers on disk: one file for each module of tests, beside this code.

A file is a compressed text of JSON lines, one an answer, in the order of their digests: the same
answers are the same bytes.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "answers"


@dataclass(frozen=True, slots=True)
class Answer:
    """A program's reply, and how it came to be."""

    script: str
    pins: tuple[str, ...]
    question: str
    reply: str
    """JSON without the paths of this machine, as the question."""


Answers = Mapping[str, Answer]
"""By digest."""


def file_of(module: str) -> Path:
    """Where the answers of a module are: `tests/verify/test_examples.py` has its own."""
    return FOLDER.joinpath(*Path(module).parts[1:]).with_suffix(".xz")


def modules() -> Iterator[str]:
    """The modules of tests with recorded answers."""
    for file in sorted(FOLDER.rglob("*.xz")):
        yield f"tests/{file.relative_to(FOLDER).with_suffix('.py').as_posix()}"


@cache
def read(module: str) -> Answers:
    """The answers of a module; none where none are recorded."""
    file = file_of(module)
    if not file.exists():
        return {}
    lines = lzma.decompress(file.read_bytes()).decode("utf-8").splitlines()
    held = (json.loads(line) for line in lines)
    return {each.pop("digest"): Answer(**each | {"pins": tuple(each["pins"])}) for each in held}


@cache
def every() -> Answers:
    """All answers: what one module asks another may have asked before."""
    found: dict[str, Answer] = {}
    for module in modules():
        found.update(read(module))
    return found


def write(module: str, answers: Answers) -> None:
    """Keep these answers of a module and no others."""
    file = file_of(module)
    if not answers:
        file.unlink(missing_ok=True)
        return
    text = "".join(f"{_line(each, answers[each])}\n" for each in sorted(answers))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode("utf-8"), preset=9))


def _line(digest: str, answer: Answer) -> str:
    held: dict[str, Any] = {
        "script": answer.script,
        "pins": answer.pins,
        "digest": digest,
        "question": answer.question,
        "reply": answer.reply,
    }
    return json.dumps(held, ensure_ascii=False)


if __name__ == "__main__":
    print(*modules())
