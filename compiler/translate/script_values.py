"""Values that are only known when a script runs, and programs without a table."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.ledger import Ledger, Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.translate.leftovers import unwritten

_WITHOUT_PLAN: Final[Mapping[str, tuple[str, str, str]]] = {
    "openrlhf-rm": (
        "openrlhf.cli.train_rm",
        "it trains a model that gives rewards, of which there is no plan",
        "train it by TRL's RewardTrainer; of OpenRLHF, train_sft and train_dpo are translated",
    ),
    "openrlhf-ppo": (
        "openrlhf.cli.train_ppo_ray",
        "Ray places actor, reference, critic and rewards on devices of their own: there is no plan",
        "write a spec with `objective: grpo` for `trl`, `ms-swift` or `verl`",
    ),
}
"""Kinds of flags that rules check and no slots express: program, reason, and alternative."""


def without_plan(documents: Iterable[Document]) -> Iterator[Diagnostic]:
    """A fault for each command of a program that has no plan."""
    for document in documents:
        if document.kind in _WITHOUT_PLAN:
            program, reason, instead = _WITHOUT_PLAN[document.kind]
            first = next(
                (each.key_label("its first flag") for each in document.found.values()), None
            )
            yield not_understood(
                f"the run of {program} has no counterpart",
                (first or Label("would be dropped", document.start()),),
                instead,
                (reason,),
            )


def unsettled(run: LintContext, ledger: Ledger) -> Iterator[Diagnostic]:
    """A fault for each value that only a run would show, unless its slots are given.

    Settings without a call in a Python script are one fault together.
    """
    for document in run.documents:
        absent = unwritten(document)
        for key in sorted(document.unknown - absent):
            if slots := _not_given(document, (key,), ledger):
                label = Label("in this script", document.start(), key)
                yield not_understood(
                    f"the value of {key} is known only when {document.name} runs",
                    (label,),
                    f"set it: {_settings(slots)}",
                )
        slots = _not_given(document, sorted(absent), ledger)
        if slots := tuple(each for each in slots if ledger.winner(each) is None):
            yield not_understood(
                f"no call in {document.name} sets {joined(slots, 'and')}; another file of the run "
                "may set them",
                (Label("in this script", document.start()),),
                f"set them: {_settings(slots)}",
            )


def _not_given(document: Document, keys: Iterable[str], ledger: Ledger) -> tuple[str, ...]:
    """The slots of keys that the command line does not set."""
    slots = dict.fromkeys(slot for key in keys for slot in slots_of(document, key))
    return tuple(slot for slot in slots if not is_given(ledger, slot))


def _settings(slots: Iterable[str]) -> str:
    return " ".join(f"--set {slot}=VALUE" for slot in slots)


def not_understood(
    message: str, labels: tuple[Label, ...], help: str, notes: tuple[str, ...] = ()
) -> Diagnostic:
    """The fault for a setting that a translation would drop."""
    return Diagnostic("E0908", "error", message, labels, notes, help=help)


def slots_of(document: Document, key: str) -> Iterator[str]:
    """The slots that rows of a document's file express by a key, given by its name or its path."""
    names = {key, *(name for name, path in document.paths.items() if path == key)}
    for entry in document.file.entries if document.file else ():
        if not names.isdisjoint(entry.keys):
            yield from entry.slots


def is_given(ledger: Ledger, slot: str) -> bool:
    """Whether the command line sets a slot."""
    winner = ledger.winner(slot)
    return winner is not None and winner.rank == Rank.PIN
