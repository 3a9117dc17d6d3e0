"""Group files into runs: by their references, else by which files fit together.

1. A file is in the run of the files that name it: a script its configs, arguments their DeepSpeed
   file.
2. If no two of the rest are of one kind, they are one run.
3. Otherwise the files of each folder are combined as far as they fit: two files of one kind are
   two choices, each of which is read with every file that it may be used with. Arguments in a
   file and in flags, or of the Trainer and of TRL, are of one kind if both set one key.
4. A DeepSpeed or accelerate file that serves nothing in its own folder is for the runs in the
   folders next above and below that have none, if it is the only one, and no file names another.

A finding that is in some runs of a file, but not in others, is reported as `Agreement` describes.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.shell_references import SCRIPTS
from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.documents import Reading

_BY_FLAGS: Final = ("shell", "env")
_MANY: Final = frozenset({"checkpoint", "hostfile"})
"""Kinds of which a run may contain several documents."""
TRAINING: Final = frozenset(
    {*TRAINERS, *SCRIPTS, "axolotl", "simpletuner", "ms-swift", "unsloth", "glm4", "minicpm-v"}
    | {"visualglm", "verl", "openrlhf", "sd-scripts", "ai-toolkit", "torchtune"}
    | {"musubi-tuner", "nemo-automodel"}
) - {"hf"}
"""Kinds that set what is trained, other than the Trainer's own arguments."""
_ARGUMENTS: Final = frozenset({"hf", "objective"})
"""The Trainer's arguments, and any other file that sets what is trained."""
_SERVING: Final = ("deepspeed", "accelerate")
"""Kinds of which one file often serves the runs of several folders."""
_LEAST_RUNS: Final = 256
"""The number of runs up to which a folder's combinations are always read."""

Kind = tuple[str, bool]
"""The kind of a file's keys, and whether they are flags: flags are common next to a file."""


class Part(Struct, frozen=True, eq=False, dict=True):
    """A named file, with the files that it refers to."""

    path: Path
    own: frozenset[Kind]
    every: frozenset[Kind]
    """The kinds of the file and of the files that it refers to."""
    arguments: frozenset[str]
    """Top-level keys that the file, or a file that it refers to, gives a trainer."""
    files: frozenset[Path]
    """The paths of all files that were read for this part."""
    names: frozenset[str]
    """The files' names as spans use them."""
    declines: bool
    """Whether the file has the key that names a DeepSpeed file, with an empty value."""
    is_read: bool
    """Whether any document of the part is of a known kind."""
    serves: bool
    """Whether the file is read where nothing is trained: it shares a run with none by itself."""

    @cached_property
    def file(self) -> Path:
        """The file's resolved path, however the file was named."""
        return self.path.resolve()

    @cached_property
    def named(self) -> frozenset[Kind]:
        """The kinds that only the files it refers to have."""
        return self.every - self.own


Group = tuple[Part, ...]


def part_of(path: Path, reading: Reading) -> Part:
    """A part, from the documents that were read for one file alone."""
    documents = [each for each in reading.documents if not each.is_view]
    counted = [each for each in documents if each.kind not in _MANY]
    own = (each for each in counted if f"{each.name}/".startswith(f"{path}/"))
    trained = (each for each in counted if _kind(each)[0] in _ARGUMENTS)
    return Part(
        path,
        frozenset(map(_kind, own)),
        frozenset(map(_kind, counted)),
        frozenset(key for each in trained for key in each.root.fields or ()),
        frozenset({path.resolve(), *(Path(each).resolve() for each in reading.sources)}),
        frozenset({str(path), *reading.sources}),
        any(_declines(each) for each in documents),
        bool(documents),
        any(map(_serves, documents)),
    )


def _serves(document: Document) -> bool:
    """Whether a file of LLaMA-Factory is for a chat, a server or an export.

    llamafactory 0.9.3 to 0.9.5 train/tuner.py `export_model`, chat/chat_model.py `ChatModel`.
    """
    is_one = any(document.get(key) is not None for key in _OF_SERVING)
    return document.kind == "llamafactory" and is_one and _OF_TRAINING.isdisjoint(document.keys)


_OF_SERVING: Final = ("infer_backend", "export_dir")
_OF_TRAINING: Final = frozenset({"do_train", "do_eval", "do_predict", "dataset", "eval_dataset"})


def _declines(document: Document) -> bool:
    at = document.get("deepspeed")
    return at is not None and at.value in (None, "", False)


def _kind(document: Document) -> Kind:
    kind = "objective" if document.kind in TRAINING else document.kind
    return kind, document.format in _BY_FLAGS


class RunFiles(Struct, frozen=True):
    """The files of each run."""

    runs: tuple[Group, ...]
    crowded: tuple[Path, ...] = ()
    """Folders with so many choices that each choice is read without the others."""


def grouped(parts: Sequence[Part]) -> RunFiles:
    """Group parts into runs, in the order in which they were named."""
    heads = tuple(_heads(parts))
    if not any(_clash(one, other) or _is_declined(one, other) for one, other in _pairs(heads)):
        return RunFiles((heads,) if heads else ())
    folders: dict[Path, list[Part]] = {}
    for part in heads:
        folders.setdefault(part.path.parent, []).append(part)
    runs: list[Group] = []
    crowded: list[Path] = []
    for folder, here in folders.items():
        most = max(_LEAST_RUNS, 2 * len(here))
        found = _together(here, most)
        if len(found) > most:
            found = _alone(here)
            crowded.append(folder)
        runs += found
    return RunFiles(tuple(_served(runs)), tuple(crowded))


def _heads(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts to which no other part refers; of two that refer to each other, the first."""
    readers: dict[Path, list[Part]] = {}
    for part in parts:
        for file in part.files:
            readers.setdefault(file, []).append(part)
    dropped: set[Path] = set()
    for part in parts:
        others = (each for each in readers[part.file] if each is not part)
        if any(each.file not in part.files or each.file in dropped for each in others):
            dropped.add(part.file)
    return (each for each in parts if each.file not in dropped)


def _pairs(parts: Sequence[Part]) -> Iterator[tuple[Part, Part]]:
    return ((one, other) for at, one in enumerate(parts) for other in parts[at + 1 :])


def _clash(one: Part, other: Part) -> bool:
    """Whether two parts are alternatives, so that no run contains both."""
    if one.serves or other.serves:
        return True
    if not (one.own.isdisjoint(other.every) and other.own.isdisjoint(one.every)):
        return True
    if one.arguments.isdisjoint(other.arguments):
        return False
    return _trains(one) and _trains(other)


def _trains(part: Part) -> bool:
    return any(kind in _ARGUMENTS for kind, _ in part.every)


def _goes(one: Part, other: Part) -> bool:
    """Whether two parts fit in one run: no alternatives, and not naming two files of one kind."""
    if _clash(one, other) or _is_declined(one, other):
        return False
    return one.named.isdisjoint(other.named) or one.files - {one.file} == other.files - {other.file}


def _is_declined(one: Part, other: Part) -> bool:
    """Whether one of two parts is a DeepSpeed file, and the other declines DeepSpeed."""
    pairs = ((one, other), (other, one))
    return any(a.declines and any(kind == "deepspeed" for kind, _ in b.own) for a, b in pairs)


def _together(parts: Sequence[Part], most: int) -> list[Group]:
    """The largest sets of parts that fit together, in order; at most `most` + 1 of them.

    The sets are the maximal cliques of a graph: Bron and Kerbosch, "Algorithm 457" (1973), with a
    pivot as in Tomita, Tanaka and Takahashi (2006).
    """
    indices = range(len(parts))
    beside = [{j for j in indices if i != j and _goes(parts[i], parts[j])} for i in indices]
    free = {each for each in indices if len(beside[each]) == len(parts) - 1}
    found: list[set[int]] = []
    waiting = [(free, set(indices) - free, set[int]())]
    while waiting and len(found) <= most:
        held, left, done = waiting.pop()
        if not left and not done:
            found.append(held)
            continue
        pivot = max(left | done, key=lambda each: (len(left & beside[each]), -each))
        for each in sorted(left - beside[pivot]):
            waiting.append((held | {each}, left & beside[each], done & beside[each]))
            left, done = left - {each}, done | {each}
    return [tuple(parts[each] for each in group) for group in sorted(map(sorted, found))]


def _alone(parts: Sequence[Part]) -> list[Group]:
    """Each part that conflicts with another one, with all parts that conflict with none."""
    clashing = {each for pair in _pairs(parts) if not _goes(*pair) for each in pair}
    free = [each for each in parts if each not in clashing]
    return [(each, *free) for each in parts if each in clashing]


def _served(runs: Sequence[Group]) -> Iterator[Group]:
    """The runs, each with the single file that serves it from a folder above or below."""
    every = {part for run in runs for part in run}
    serving = [run[0] for run in runs if len(run) == 1 and _is_serving(run[0])]
    kinds = {kind for part in every for kind in part.named}
    serving = [each for each in serving if each.own.isdisjoint(kinds)]
    used: set[Part] = set()
    joined: list[Group] = []
    for run in runs:
        mine = [each for each in serving if each not in run and _is_for(each, run)]
        taken = [each for each in mine if not any(_clash(each, o) for o in mine if o is not each)]
        used.update(taken)
        joined.append((*run, *taken))
    return (run for run in joined if run[0] not in used)


def _is_serving(part: Part) -> bool:
    return {kind for kind, _ in part.own} <= {*_SERVING} and part.is_read


def _is_for(part: Part, run: Group) -> bool:
    """Whether a part fits a run that trains and is in the folder directly above or below."""
    here, there = run[0].path.resolve().parent, part.file.parent
    is_related = there == here.parent or there.parent == here
    return is_related and any(map(_trains, run)) and all(_goes(part, each) for each in run)


# ── what is found where files were guessed to go together ────────────────────────────────────────

Key = tuple[Part, Hashable]


class Agreement:
    """Which findings hold if files are in several runs because their use is unknown.

    A finding holds if one of the files of its run has it in every run of that file: arguments that
    differ from both of two DeepSpeed files, or one such file that differs from all arguments. If
    each file has a partner that it agrees with, the partners are probably meant for each other.
    """

    def __init__(self, runs: Sequence[tuple[Group, Sequence[Diagnostic]]]) -> None:
        self._runs = Counter(part for group, _ in runs for part in group)
        several = frozenset(part for part, count in self._runs.items() if count > 1)
        self._seen: Counter[Key] = Counter()
        for group, found in runs:
            mine = several.intersection(group)
            self._seen.update({_key(part, each) for part in mine for each in found})

    def holds(self, found: Diagnostic, group: Group) -> bool:
        """Whether a finding of a run holds."""
        return not group or any(self._always(part, found) for part in group)

    def _always(self, part: Part, found: Diagnostic) -> bool:
        count = self._runs[part]
        return count == 1 or self._seen[_key(part, found)] == count


def _key(part: Part, found: Diagnostic) -> Key:
    """A finding, identified by its places in a part's files, or by all places if none is there."""
    places = [(each.span, each.path) for each in found.labels]
    mine = [at for at in places if at[0] is not None and at[0].file in part.names]
    return part, (found.id, *(mine or places))
