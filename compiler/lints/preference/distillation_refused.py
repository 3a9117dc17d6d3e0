"""A number of generalised knowledge distillation, or a teacher, that GKD refuses."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import real
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SHARES: Final = ("lmbda", "beta")
_VOCABULARIES: Final = (
    (re.compile(r"/qwen2(\.5)?-(coder-|math-)?(0\.5|1\.5|3)b"), 151936),
    (re.compile(r"/qwen2(\.5)?-(coder-|math-)?(7|14|32|72)b"), 152064),
    (re.compile(r"/qwen3-"), 151936),
    (re.compile(r"/(meta-)?llama-3"), 128256),
    (re.compile(r"/llama-2-"), 32000),
    (re.compile(r"/mistral-7b-(instruct-)?v0\.[12]"), 32000),
    (re.compile(r"/mistral-7b-(instruct-)?v0\.3"), 32768),
    (re.compile(r"/gemma-2-"), 256000),
)
"""`vocab_size` of the config.json of each repository; huggingface/trl#2215 names Qwen2.5's."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("gkd"):
        if document.is_view:
            continue
        for key in _SHARES:
            at = document.get(key)
            share = real(at.value) if at is not None else None
            if at is not None and share is not None and not 0 <= share <= 1:
                yield Finding(
                    f"{key} {at.value} is not from 0 to 1",
                    (at.label("refused"),),
                    (f"{key} must be in the range [0.0, 1.0]",),
                    "write 0.5",
                    consequence="parse",
                )
        yield from _vocabularies(document)


def _vocabularies(document: Document) -> Iterator[Finding]:
    student, teacher = (
        document.get(key) for key in ("model_name_or_path", "teacher_model_name_or_path")
    )
    if student is None or teacher is None:
        return
    ours, theirs = (_vocabulary(each.value) for each in (student, teacher))
    if ours is not None and theirs is not None and ours != theirs:
        yield Finding(
            f"a student of {ours} tokens and a teacher of {theirs}",
            (teacher.label("another vocabulary"), student.label("", primary=False)),
            ("the loss compares the probabilities of every token of one vocabulary",),
            "take a teacher with the same vocab_size, or GOLD",
        )


def _vocabulary(name: object) -> int | None:
    text = f"/{str(name).lower().rpartition('/')[2]}"
    return next((size for pattern, size in _VOCABULARIES if pattern.search(text)), None)


RULE = Rule(
    name="distillation-refused",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.12.2 to 1.16.0 gkd_config.py `__post_init__`: lmbda must be in the range, beta "
            "must be in the range; 1.16.0 experimental/gkd/gkd_trainer.py `__init__`: vocab_size"
        ),
        "huggingface/trl#2215, #3028, #6252: before it a broadcast of kl_div failed",
    ),
    check=_check,
)
