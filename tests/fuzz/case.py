"""One mangled call: made from a number, run in a folder of its own, and judged."""

import base64
import io
import json
import os
import re
import resource
import signal
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutations import mangled, mangled_bytes, mangled_word
from tests.fuzz.seeds import drawn

from tunec.compiler import derived_cards

SECONDS = 5
"""Of the processor, not of the clock: a busy machine changes nothing."""
BYTES = 2**30
"""How much more address space one case may take."""
_AS_TEXT = 0.3
"""Share of the cases that do not ask for JSON."""
_HERE = "outer/here"
"""Where a case runs, below its own directory: `../../x`, which some name, is inside it too."""
_MOVING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
"""A carriage return before the end of a line is part of a difference that `patch` reads."""
_OTHER = 0.1
"""Share of the cases whose files stay sound, and of those with files whose words are spoilt too."""


@dataclass(frozen=True, slots=True)
class Case:
    """Files as bytes by name, and the words after `tunec`."""

    files: Mapping[str, bytes]
    words: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As it is kept: bytes that are text as text, others in base 64."""
        return {"words": list(self.words), "files": {n: _kept(d) for n, d in self.files.items()}}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> "Case":
        """A case as it was kept."""
        files = {name: _bytes(each) for name, each in data["files"].items()}
        return cls(files, tuple(data["words"]))


def case_of(seed: int, number: int) -> Case:
    """The case of a number: the same wherever it is asked, for one state of the repository."""
    random = Random(f"{seed}:{number}")  # noqa: S311
    sound, other = drawn(random), drawn(random)
    lent = next((each for each in other.files.values() if isinstance(each, str)), "")
    files = {name: _in_bytes(each) for name, each in sound.files.items()}
    words = list(sound.words)
    if files and random.random() > _OTHER:
        for name in random.sample(sorted(files), random.choice((1, 1, len(files)))):
            files[name] = _spoilt(sound.files[name], lent, random)
    if not files or random.random() < _OTHER:
        at = random.randrange(1, len(words))
        words[at] = mangled_word(words[at], random)
    if not {"--format", "--", "lsp", "mcp"} & {*words} and random.random() > _AS_TEXT:
        words += ["--format", "json"]
    return Case(files, tuple(words))


def _in_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _spoilt(content: str | bytes, lent: str, random: Random) -> bytes:
    if isinstance(content, bytes):
        return mangled_bytes(content, random)
    return mangled(content, lent, random)


def faults(case: Case) -> list[str]:
    """What is wrong with how tunec took a case; empty if it was told as it should be."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name, _HERE)
        folder.mkdir(parents=True)
        for file, data in case.files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        before = _below(Path(name))
        code, out, err = _asked(case, folder)
        new = _below(Path(name)) - before
    return [*_faults_of(case, code, out, err), *_strays(case, new)]


class _TooLongError(BaseException):
    """The processor time of a case is used up; no handler of tunec's takes it for its own."""


def _asked(case: Case, folder: Path) -> tuple[int | str, str, str]:
    from tests.fuzz.servers import answered  # heavy: each process that collects tests reads this

    out, err = io.StringIO(), io.StringIO()
    code: int | str
    try:
        with chdir(folder), redirect_stdout(out), redirect_stderr(err), _limited(), _underived():
            code = answered(case.words)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except _TooLongError:
        code = "time"
    except MemoryError:
        code = "memory"
    except Exception:  # noqa: BLE001  a server is asked without what tells of faults around it
        code = "raised"
        err.write(traceback.format_exc())
    return code, out.getvalue(), err.getvalue()


@contextmanager
def _underived() -> Iterator[None]:
    """A card is derived in a process of its own, by torch, in a minute: no case asks for one."""
    before, derived_cards.NEEDED = derived_cards.NEEDED, ("tunec_derives_no_card_here",)
    try:
        yield
    finally:
        derived_cards.NEEDED = before


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


# ── what is wrong ────────────────────────────────────────────────────────────────────────────────


def _faults_of(case: Case, code: int | str, out: str, err: str) -> Iterator[str]:
    if code not in (0, 1, 2):
        yield f"exit {code}: {_cause(out, err)}"
        return
    if "Traceback (most recent" in out + err:
        yield f"traceback: {_cause(out, err)}"
    if odd := _moving(out + err):
        yield f"raw control character {odd!r}"
    if code and not (out or err).strip():
        yield f"exit {code} without a word"
    if case.words[-2:] == ("--format", "json") and out:
        yield from _placeless(out)


def _cause(out: str, err: str) -> str:
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    places = [line for line in lines if line.startswith('File "') and "tunec" in line]
    told = [line for line in lines if "Error" in line or "Exception" in line]
    failed = [each for each in out.splitlines() + err.splitlines() if "raised in " in each]
    return " | ".join([*places[-1:], *told[-1:], *failed[:1]])[-400:]


def _moving(text: str) -> str:
    """The first character that moves a terminal or a reader, or nothing."""
    found = _MOVING.search(text)
    return found[0] if found else ""


def _placeless(out: str) -> Iterator[str]:
    """Diagnostics that name no file."""
    try:
        data = json.loads(out)
    except ValueError as fault:
        yield f"what should be JSON is none: {fault}"
        return
    told = data if isinstance(data, list) else data.get("diagnostics", [])
    for each in told:
        if "severity" in each and not any(label["file"] for label in each["labels"]):
            yield f"{each['id']} has no place"


def _strays(case: Case, new: set[str]) -> Iterator[str]:
    """Files that were written where nobody asked for any; the folders around one are not told."""
    named = (*case.words[1:], *_directories(case.words))
    asked = {Path(os.path.normpath(f"{_HERE}/{each}")) for each in named}
    allowed = (
        {f"{each}" for each in asked}
        | {f"{_HERE}/{each}" for each in named}
        | {f"{each.parent}/spec.schema.json" for each in asked}
    )
    for name in sorted(new):
        beside = case.words[0] == "calibrate" and name.endswith(".measured.yaml")
        if not beside and not any(
            f"{name}/".startswith(f"{each}/") or each.startswith(name) for each in allowed
        ):
            yield f"wrote {name}"


def _directories(words: tuple[str, ...]) -> Iterator[str]:
    """Where a tool of `mcp` was told to write, or writes when it is not told."""
    if words[0] == "mcp":
        yield "out"
        with suppress(ValueError, LookupError, TypeError):
            yield str(json.loads(words[2])["directory"])


def _kept(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(kept: Any) -> bytes:
    return kept.encode() if isinstance(kept, str) else base64.b64decode(kept["base64"])
