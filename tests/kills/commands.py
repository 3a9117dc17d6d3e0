"""The commands that write, before and after a change of their input, and what they should leave."""

from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.calibrate.logs import TRAINER
from tests.fleet.fleets import SPEC

from tunec.compiler.cli.main import run
from tunec.compiler.fleet.lock import LOCK, is_own, read_lock
from tunec.compiler.writing import COMPLETE, STAGED
from tunec.targets.registry import REGISTRY

OUT = "out"
FLEET = """\
fleet: 1
specs: spec-*.yaml
clusters: [a100-80g-x8, t4-x1]
targets: [deepspeed, huggingface]
"""
ENGINE = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimisation": {"stage": %d}}\n'
CLIPPED = '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": "%d.0"}\n'
Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Command:
    """One call, with the two states of its input."""

    name: str
    words: tuple[str, ...]
    old: Mapping[str, str]
    """Files that are there in the first place, by path."""
    new: Mapping[str, str]
    sets: int = 0
    """Parts of a path that name the folder of a set; 0: each file is by itself."""
    writes: str = OUT
    """What is written: a file, or a folder."""

    def put(self, folder: Path, *, is_new: bool) -> None:
        """Write the input."""
        for name, text in (self.new if is_new else self.old).items():
            (folder / name).write_text(text, "utf-8")

    def run(self, folder: Path) -> int:
        """Call tunec in a folder."""
        with chdir(folder):
            return run(self.words, REGISTRY, "0")

    def written(self, folder: Path) -> dict[str, bytes]:
        """What is there of what it writes, without what is on the way or a lock."""
        top = folder / self.writes
        every = [top] if top.is_file() else [each for each in top.rglob("*") if each.is_file()]
        found = {each.relative_to(folder).as_posix(): each.read_bytes() for each in every}
        return {name: data for name, data in found.items() if not is_on_the_way(name)}


def is_on_the_way(name: str) -> bool:
    """Whether a file is not in its place yet, or is a fleet's lock, which has times of its own."""
    parts = name.split("/")
    return any(each.endswith((STAGED, COMPLETE)) or is_own(each) for each in parts)


def _spec(epochs: int, sequence: int = 1024) -> str:
    text = SPEC.format(model="llama-3.2-1b", method="lora", sequence=sequence)
    return text.replace("epochs: 1", f"epochs: {epochs}")


def _fleet(epochs: int) -> dict[str, str]:
    specs = {f"spec-{at}.yaml": _spec(epochs, 512 * (at + 1)) for at in range(2)}
    return {"fleet.yaml": FLEET, **specs}


def _records(count: int) -> str:
    return "".join(f'{{"text": "{"a dog " * at}"}}\n' for at in range(1, count + 1))


_TARGETS = ("--target", "deepspeed", "--target", "huggingface", "--target", "launch")
COMMANDS = (
    Command(
        "compile",
        ("compile", "spec.yaml", *_TARGETS, "-o", f"{OUT}"),
        {"spec.yaml": _spec(1)},
        {"spec.yaml": _spec(3)},
        sets=1,
    ),
    Command("fleet", ("fleet", "fleet.yaml", "-o", f"{OUT}"), _fleet(1), _fleet(3), sets=3),
    Command(
        "report",
        ("report", "spec.yaml", "-o", "page.html"),
        {"spec.yaml": _spec(1)},
        {"spec.yaml": _spec(3)},
        writes="page.html",
    ),
    Command(
        "lint --fix",
        ("lint", "ds_config.json", "--fix"),
        {"ds_config.json": CLIPPED % 1},
        {"ds_config.json": CLIPPED % 2},
        writes="ds_config.json",
    ),
    Command(
        "lint --write-baseline",
        ("lint", "ds_config.json", "--baseline", "known.json", "--write-baseline"),
        {"ds_config.json": ENGINE % 1},
        {"ds_config.json": ENGINE.replace("bf16", "bf61") % 2},
        writes="known.json",
    ),
    Command(
        "calibrate",
        ("calibrate", "spec.yaml", "train.log", "-o", "a.measured.yaml"),
        {"spec.yaml": _spec(1), "train.log": TRAINER},
        {"spec.yaml": _spec(1), "train.log": TRAINER.replace("310.0", "410.0")},
        writes="a.measured.yaml",
    ),
    Command(
        "data",
        ("data", "train.jsonl", "--estimate", "-o", "lengths.json"),
        {"train.jsonl": _records(3)},
        {"train.jsonl": _records(5)},
        writes="lengths.json",
    ),
    Command(
        "choose",
        ("choose", "spec.yaml", "--hardware", "a100-80g-x8", "-o", "choice.html"),
        {"spec.yaml": _spec(1)},
        {"spec.yaml": _spec(3)},
        writes="choice.html",
    ),
)


def faults_after_kill(
    command: Command, folder: Path, old: Files, new: Files, *, is_in_place: bool
) -> list[str]:
    """What is torn after a kill; empty if every file, and every set, is the old one or the new one.

    `is_in_place`: its input is what it writes, and stands there before.
    """
    here = command.written(folder)
    wrong = [
        f"torn: {name}" for name, data in here.items() if data not in (old.get(name), new.get(name))
    ]
    for name, files in _sets(command, here).items():
        states = (_sets(command, each).get(name) for each in (old, new))
        if not (folder / name / COMPLETE).exists() and files not in states:
            wrong.append(f"torn set: {name}, and nothing waits to be moved")
    if is_in_place and not here:
        wrong.append("the file is gone")
    if (folder / OUT / LOCK).is_file():
        wrong += _untrue(folder / OUT)
    return wrong


def _sets(command: Command, files: Files) -> dict[str, dict[str, bytes]]:
    """The files of each set by the folder that they are the set of."""
    found: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        if command.sets:
            folder = "/".join(name.split("/")[: command.sets])
            found.setdefault(folder, {})[name] = data
    return found


def _untrue(tree: Path) -> list[str]:
    """Files that the lock of a fleet says something wrong of."""
    return [
        f"the lock is wrong of {name}"
        for locked in read_lock(tree)
        for name, digest in locked.artifacts.items()
        for file in (tree / locked.pair.spec / locked.pair.cluster / name,)
        if not file.is_file() or sha256(file.read_bytes()).hexdigest() != digest
    ]


def faults_after_next(command: Command, folder: Path, new: Files) -> list[str]:
    """What the next run has not put right: other files than it should write, or leftovers."""
    wrong = [] if command.written(folder) == new else ["the next run did not write its files"]
    left = (each for each in folder.rglob("*") if each.name.endswith((STAGED, COMPLETE)))
    wrong += [f"left over: {each.relative_to(folder)}" for each in left]
    tree = folder / OUT
    parts = tree.glob(f"{LOCK}.*") if tree.is_dir() else ()
    return [*wrong, *(f"left over: {each.name}" for each in parts)]
