"""PPO's minibatches are too small to be whitened, or no whole part of the batch."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label, Term
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LEAST: Final = 8
_SIZES: Final = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
"""What the batch of one device is made of, and what each is where nothing is said."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("ppo"):
        said = {key: _number(document, key, absent) for key, absent in _SIZES.items()}
        parts = _number(document, "num_mini_batches", 1)
        if document.is_view or parts is None or None in said.values():
            continue
        batch, accumulated = (each or 0 for each in said.values())
        # until 0.16 the batch was made of the minibatches, and divides into them
        is_divided = run.runs("trl<0.17") is False
        samples = batch * accumulated
        if samples % parts and run.runs("trl<0.17") is not True:
            for found in _uneven(document, samples, parts):
                yield found if is_divided else replace(found, severity="warning")
        elif document.value("whiten_rewards") is True:
            yield from _narrow(document, samples // parts if is_divided else samples)


def _number(document: Document, key: str, absent: int) -> int | None:
    if key in document.unknown:
        return None
    at = document.get(key)
    return absent if at is None else whole(at.value)


def _uneven(document: Document, samples: int, parts: int) -> Iterator[Finding]:
    at = document.get("num_mini_batches")
    if at is not None:
        yield Finding(
            f"{parts} minibatches of {samples} samples on a device",
            (at.label("does not divide them"), *_beside(document)),
            ("`local_batch_size` must be a multiple of `num_mini_batches`",),
            f"write a divisor of {samples}",
            sum=(Term("samples on a device", samples, ""), Term("minibatches", parts, "")),
        )


def _narrow(document: Document, samples: int) -> Iterator[Finding]:
    at = document.get("whiten_rewards")
    if at is not None and samples < _LEAST:
        yield Finding(
            f"whiten_rewards over minibatches of {samples} samples on a device",
            (at.label(f"needs {_LEAST}"), *_beside(document)),
            ("a mean and a variance of so few are noise: the trainer asserts at least 8",),
            "raise per_device_train_batch_size or gradient_accumulation_steps, or turn it off",
            sum=(Term("samples of a minibatch", samples, ""), Term("least", _LEAST, "")),
        )


def _beside(document: Document) -> tuple[Label, ...]:
    found = (document.get(key) for key in _SIZES)
    return tuple(each.label("", primary=False) for each in found if each is not None)


RULE = Rule(
    name="minibatch-refused",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.12.2 to 0.28.0 trainer/ppo_trainer.py, 1.3.0 to 1.9.2 "
            "experimental/ppo/ppo_trainer.py `PPOTrainer.__init__`: Per-rank minibatch size is "
            "insufficient for whitening; from 0.17 on `exact_div` of local_batch_size, before it "
            "local_batch_size is their product"
        ),
    ),
    check=_check,
)
