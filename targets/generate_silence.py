"""Grow the trees by which rules are known to be silent (`compiler/lints/silence.py`).

    python -m tunec.targets.generate_silence [--check]

Rules are watched on what tunec emits for many plans. `--check` fails where a rule has changed
since.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Final

from tunec.compiler.driver import plan
from tunec.compiler.emit import emit
from tunec.compiler.frontend.load import Loaded, load_text
from tunec.compiler.lints.emitted import environment_of, run_of
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rules, subject
from tunec.compiler.lints.questions import Question, answer
from tunec.compiler.lints.rule import Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.silence import FILE, SILENT, UNKNOWN
from tunec.compiler.lints.telling import is_elsewhere
from tunec.compiler.lints.watching import trail
from tunec.targets.registry import TARGETS

_LINTS: Final = Path(__file__).parent.parent / "compiler" / "lints"
_LEAST_SEEN: Final = 4
"""What fewer samples answer is a number of their own, which hardly another run shares."""

_MODELS: Final = (
    *("llama-3.1-8b", "qwen2.5-7b", "mixtral-8x7b", "minicpm-v-2_6", "qwen2.5-vl-7b"),
    *("tinyllama-1.1b", "glm-4v-9b", "sdxl-base-1.0", "flux.1-dev", "llama-2-70b"),
)
_METHODS: Final = ("lora", "qlora", "full")
_HARDWARE: Final = (
    *("p100-x1", "rtx-3090-x4", "rtx-4090-x2", "a100-80g-x1", "a100-80g-x8", "h100-sxm-x8-n2"),
    *("t4-x2", "titan-rtx-gtx-1080-ti"),
)
_STRIDE: Final = 5
"""Of all combinations each fifth: the number of methods and of clusters is prime to it."""
_SPEC: Final = """tunec: 1
model: {model}
method: {method}
data: {data}
hardware: {hardware}
{more}
"""
_TEXTS: Final = "{{train: train.jsonl, samples: 10k, sequence: 2048{}}}"
_IMAGES: Final = "{{train: train.jsonl, samples: 10k, sequence: 2048, images: {{per_sample: 1}}{}}}"
_PICTURES: Final = "{{train: datasets/images, samples: 500, resolution: 1024{}}}"
_MORE: Final = (
    ("", ""),
    (", evaluation: dev.jsonl", "train: {steps: 3000, evaluations: 6, checkpoints: 6}"),
    (", evaluation: dev.jsonl", "batch: {global: 16}"),
    ("", "train: {epochs: 3, warmup: 1%, optimizer: {weight_decay: 0.1}}"),
    ("", "objective: dpo"),
    (", evaluation: dev.jsonl", "objective: grpo"),
    ("", "pin: {zero.stage: 2}"),
    ("", "pin: {zero.stage: 3, batch.micro: 1}"),
)
"""What is added to the data, and to the spec."""

_DATA: Final = {
    **dict.fromkeys(("minicpm-v-2_6", "qwen2.5-vl-7b", "glm-4v-9b"), _IMAGES),
    **dict.fromkeys(("sdxl-base-1.0", "flux.1-dev"), _PICTURES),
}
"""Of models that want more than texts."""


def main(arguments: list[str] | None = None) -> int:
    """Write the trees, or with `--check` compare what they were grown from; return the status."""
    parser = argparse.ArgumentParser(prog="python -m tunec.targets.generate_silence")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when stale")
    options = parser.parse_args(arguments)
    path = _LINTS / FILE
    if options.check:
        fresh = json.loads(path.read_text("utf-8"))[0]["rules_digest"] == rules_digest()
        sys.stderr.write("" if fresh else f"{FILE} is stale: a rule has changed since\n")
        return 0 if fresh else 1
    path.write_text(grown(runs()), "utf-8")
    return 0


def rules_digest() -> str:
    """Of all that decides what a rule asks and finds: the rules, and the engine below them."""
    found = sha256()
    for path in sorted(_LINTS.rglob("*.py")):
        found.update(path.relative_to(_LINTS).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


# ── plans ────────────────────────────────────────────────────────────────────────────────────────


def runs() -> Iterator[Run]:
    """What is emitted for plans of all kinds, with all that is known of them and with nothing."""
    every = list(product(_MODELS, _METHODS, _HARDWARE))[::_STRIDE]
    for at, (model, method, hardware) in enumerate(every):
        for data, more in _MORE[at % 2 :: 2]:
            told = _DATA.get(model, _TEXTS).format(data)
            text = _SPEC.format(model=model, method=method, hardware=hardware, data=told, more=more)
            loaded = load_text(text)
            for name in TARGETS.names():
                yield from _runs(name, loaded)


def _runs(name: str, loaded: Loaded) -> Iterator[Run]:
    asked = TARGETS.resolve(name)
    planned = plan(loaded, [asked], repairing=False)
    if planned.facts is None or planned.plan is None:
        return
    files, faults = emit(asked[0], planned.plan, asked[1], software=planned.facts.versions)
    if any(each.severity == "error" for each in faults):
        return
    yield run_of(asked[0], files, environment_of(*asked, planned.facts, planned.plan))
    yield run_of(asked[0], files, Environment(readers=(name,)))


# ── trees ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Node:
    """A question that a rule asks, with what it does by each answer so far."""

    question: Question | None = None
    branches: "dict[str, _Node]" = field(default_factory=dict)
    is_silent: bool = False
    seen: int = 0
    """How many samples led here."""


def grown(samples: Iterable[Run]) -> str:
    """The file: every rule's tree from what it asks of the samples."""
    trees = {each.name: _Node() for each in rules()}
    for run in samples:
        told: dict[Question, str] = {}
        for each in rules():
            _grow(trees[each.name], each, run, told)
    table = _Table({}, {}, [])
    roots = {f"{subject(name)}/{name}": table.number(tree) for name, tree in trees.items()}
    head = {"rules_digest": rules_digest(), "questions": list(table.questions), "rules": roots}
    lines = (json.dumps(e, ensure_ascii=False, separators=(",", ":")) for e in (head, *table.nodes))
    return "[\n" + ",\n".join(lines) + "\n]\n"


@dataclass(slots=True)
class _Table:
    """Trees as they are written: what two of them have in common stands there once."""

    questions: dict[Question, int]
    known: dict[str, int]
    nodes: list[tuple[int, dict[str, int]]]

    def number(self, node: _Node) -> int:
        """The number of a node that is now written; UNKNOWN where nothing is known below it."""
        if node.question is None:
            return SILENT if node.is_silent else UNKNOWN
        often = {text: each for text, each in node.branches.items() if each.seen >= _LEAST_SEEN}
        every = {text: self.number(each) for text, each in often.items()}
        branches = {text: each for text, each in sorted(every.items()) if each != UNKNOWN}
        if not branches:
            return UNKNOWN
        written = (self.questions.setdefault(node.question, len(self.questions)), branches)
        key = json.dumps(written)
        if key not in self.known:
            self.known[key] = len(self.nodes)
            self.nodes.append(written)
        return self.known[key]


def _grow(node: _Node, rule: Rule, run: Run, told: dict[Question, str]) -> None:
    if _is_proven(node, run, told):
        _count(node, told)
        return
    asked, is_silent = trail(partial(_check, rule), run)
    for question, told_now in asked.items():
        if node.question not in (None, question):
            raise ValueError(f"{rule.name} asks {question} where it asked {node.question} before")
        node.question = question
        node = node.branches.setdefault(told_now, _Node())
        node.seen += 1
    node.is_silent = node.is_silent or is_silent


def _count(node: _Node, told: dict[Question, str]) -> None:
    while node.question is not None:
        node = node.branches[told[node.question]]
        node.seen += 1


def _is_proven(node: _Node, run: Run, told: dict[Question, str]) -> bool:
    """Whether the tree knows already that the rule finds nothing in a run."""
    while node.question is not None:
        if node.question not in told:
            told[node.question] = answer(run, node.question)
        if told[node.question] not in node.branches:
            return False
        node = node.branches[told[node.question]]
    return node.is_silent


def _check(rule: Rule, run: Run) -> Iterable[Any]:
    return () if is_elsewhere(rule, run) else rule.check(run)


if __name__ == "__main__":
    sys.exit(main())
