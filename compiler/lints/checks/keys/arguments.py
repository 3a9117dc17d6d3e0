"""Arguments of calls in Python files: each class refuses a name that it does not have."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.known_keys import fields_ever, foreign_keys
from tunec.compiler.lints.rule import Finding, rule

_CLASSES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "hf": ("TrainingArguments", "transformers", ("seq2seq_training_arguments",)),
    "peft": ("LoraConfig", "peft", ("lora_config",)),
    **{kind: (f"{kind.upper()}Config", "trl", (f"{kind}_config",)) for kind in TRL},
    "reward": ("RewardConfig", "trl", ("reward_config",)),
}
"""Kind -> the class, its package, and what of its fields is known."""
_OF_TRAINER: Final = "training_arguments"


@rule(
    "argument-of-no-release",
    "error",
    "parse",
    consumers=("transformers", "trl", "peft"),
    reads=tuple(f"{kind}:*" for kind in _CLASSES),
)
def argument_of_no_release(run: LintContext) -> Iterator[Finding]:
    """A call gives a class an argument that it has in no release that is known."""
    for document in run.of(*_CLASSES):
        if document.format != "python" or document.is_view:
            continue
        oldest = known_releases(_CLASSES[document.kind][2][0])[0]
        if run.runs(f"{_CLASSES[document.kind][1]}>={oldest}") is False:
            continue
        known = _fields(document)
        told = _told_elsewhere(run, document)
        for path, place in document.found.items():
            if "." not in path and path not in known and path not in told:
                yield _finding(place, known)


def _fields(document: Document) -> frozenset[str]:
    _, package, stems = _CLASSES[document.kind]
    own = frozenset[str]().union(*(fields_ever(each) for each in stems))
    return own if package == "peft" else own | fields_ever(_OF_TRAINER)


def _told_elsewhere(run: LintContext, document: Document) -> frozenset[str]:
    """What `unknown-key` tells as misspelt, and the releases before those that are known had."""
    if document.kind != "hf":
        return frozenset()
    return frozenset(place.path for place, _ in foreign_keys(run, document))


def _finding(place: Place, known: frozenset[str]) -> Finding:
    name, package, stems = _CLASSES[place.document.kind]
    releases = known_releases(stems[0])
    return Finding(
        f"{name} takes no argument `{place.path}`",
        (place.key_label("TypeError: unexpected keyword argument"),),
        (f"no release of {package} from {releases[0]} to {releases[-1]} has it",),
        did_you_mean(nearest(place.path, known)) or "give it to what takes it, or remove it",
    )
