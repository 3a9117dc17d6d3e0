"""Tells where a trainer computes the loss of a conversation over every token, not answers alone.

Trainers differ in what they do by default; a spec that says `data.loss_on` has all do the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tunec.compiler.data_columns import first_record, is_conversation
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, File, Json

_HELP: Final = (
    "`--set data.loss_on=answers` for answers alone, or `data.loss_on=all` if that is meant"
)
ANSWERS_ALONE: Final = "assistant_only_loss"
"""TRL's argument, in whose terms a target says what its program does (`File.defaults`)."""
_CONVERSATIONS: Final = (None, "messages", "sharegpt", "alpaca")
_SPEAKERS: Final = (
    "its template knows the speakers user and assistant: if they are named human and gpt in the "
    "data, which was not read, it meets these names as they are"
)


def every_token_counts(
    loaded: Loaded,
    plan: Plan,
    asked: Iterable[Asked],
    written: Mapping[str, Iterable[Artifact]],
    software: Mapping[str, str],
) -> Iterator[Diagnostic]:
    """A note for each target that also trains what users say, with those that do not beside it."""
    is_open = plan.objective.kind == "sft" and plan.data.loss_on is None
    if not is_open or not _converses(loaded, plan):
        return
    found = [
        (target, target.dialect(version, software), takes)
        for target, version in asked
        for file in target.files
        for artifact in written.get(target.name, ())
        if artifact.name == file.name
        for takes in _takes_answers_alone(file, artifact.values)
    ]
    others = [target.name for target, _, takes in found if takes]
    beside = joined(others, "and") or "most other trainers"
    for target, dialect, takes in found:
        if takes:
            continue
        renames = all(each.renames for each in target.records(plan))
        yield Diagnostic(
            "loss-over-every-token",
            "note",
            f"{target.name} computes the loss of a conversation over every token, also over what "
            f"users say; {beside} over answers alone",
            (Label("these conversations", path="data.train"),),
            () if renames or _is_read(loaded, plan) else (_SPEAKERS,),
            help=_HELP if "data.loss_on" in target.sayable(dialect) else None,
        )


def _takes_answers_alone(file: File, values: Mapping[str, Json]) -> Iterator[bool]:
    """What the program does with the keys of a file, if that is known."""
    told = {**file.defaults(values), **values}.get(ANSWERS_ALONE)
    if isinstance(told, bool):
        yield told


def _converses(loaded: Loaded, plan: Plan) -> bool:
    """Whether the data may hold conversations: by its format, or by its first record."""
    records = [first_record(path, loaded.base) for path in training_data(plan)]
    may_be = any(each is None or is_conversation(each) for each in records)
    return plan.data.format in _CONVERSATIONS and may_be


def _is_read(loaded: Loaded, plan: Plan) -> bool:
    """Whether every file of the data was looked at, so that its speakers are known."""
    if plan.data.format is not None:
        return True
    return all(first_record(path, loaded.base) is not None for path in training_data(plan))
