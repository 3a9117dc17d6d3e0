"""Files that are missing, of no kind or another program's, and unused allowances."""

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.context import LintContext, Missing
from tunec.compiler.lints.document import TRAINERS, Document, Place
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.rule import ALWAYS, Finding, rule
from tunec.schemas.source import Span

_TOLD: Final = {"accelerate": "accelerate's", "deepspeed": "DeepSpeed's", "axolotl": "Axolotl's"}
_OTHER_READERS: Final = ("deepspeed", "axolotl", "llamafactory", "simpletuner", *TRAINERS)


@rule(
    "file-of-another-reader",
    "error",
    "parse",
    consumers=("accelerate", "transformers"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/config/config_args.py `load_config_from_file`, "
            "`BaseConfig.from_json_file`, `from_yaml_file`: distributed_type must be specified"
        ),
        "transformers 4.40.2 to 5.23.0 deepspeed: HfTrainerDeepSpeedConfig(path), json.load",
    ),
    reads=("launch:flags.config_file", "launch:flags.deepspeed_config_file"),
)
def file_of_another_reader(run: LintContext) -> Iterator[Finding]:
    """A file is named where another program's file is read."""
    for document in launches(run, "accelerate"):
        at = document.get("flags.config_file")
        other = _named(run, at, "accelerate", _OTHER_READERS)
        if at is not None and other is not None:
            yield _finding(
                at,
                other,
                "accelerate launch reads its own configuration there",
                "accelerate: a `distributed_type` must be specified, or: had unknown keys",
                _mend(other),
            )
        yield from _of_deepspeed(run, document.get("flags.deepspeed_config_file"))


def _of_deepspeed(run: LintContext, at: Place | None) -> Iterator[Finding]:
    other = _named(run, at, "deepspeed", ("accelerate",))
    if at is not None and other is not None:
        yield _finding(
            at,
            other,
            "DeepSpeed's JSON is read there",
            "json cannot read it: expected a path to an existing deepspeed config",
            "start the run by `accelerate launch --config_file` with it, or name a JSON",
        )


def _mend(other: Document) -> str:
    if other.kind == "deepspeed":
        return "write --use_deepspeed --deepspeed_config_file, or name an accelerate file"
    return "give it to the script, behind its name"


def _named(
    run: LintContext, at: Place | None, own: str, others: tuple[str, ...]
) -> Document | None:
    """The file of that name that is another's; None where one of its own has it, too."""
    if at is None or not isinstance(at.value, str):
        return None
    name = PurePath(at.value).name
    mine = [each for each in run.documents if PurePath(each.name).name == name]
    mine = [each for each in mine if not each.is_view and each.format != "shell"]
    if any(each.kind == own for each in mine):
        return None
    return next((each for each in mine if each.kind in others), None)


def _finding(at: Place, other: Document, what: str, why: str, mend: str) -> Finding:
    whose = _TOLD.get(other.kind, "a trainer's")
    return Finding(
        f"{at.value} is {whose} file, and {what}", (at.label("not read so"),), (why,), mend
    )


@rule(
    "missing-file",
    "warning",
    "parse",
    consumers=("transformers", "accelerate", "deepspeed"),
    sources=(
        (
            "transformers 5.23.0 integrations/deepspeed.py, accelerate 1.15.0 utils/deepspeed.py "
            "`HfDeepSpeedConfig.__init__`: expected a path to an existing deepspeed config"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `fetch_hostfile`: Unable to find "
            "hostfile, will proceed with training with local resources only"
        ),
    ),
    reads=ALWAYS,
)
def missing_file(run: LintContext) -> Iterator[Finding]:
    """A file that another one names is not there."""
    for each in run.missing:
        if each.place.path.endswith("hostfile"):
            yield _no_hosts(each)
            continue
        yield Finding(
            f"{each.path} cannot be read: {each.why}",
            (each.place.label("named here"),),
            (
                (
                    "looked for beside this file, in the directories around it, and where tunec "
                    "was started"
                ),
            ),
            "give the file, or run tunec where the training is started",
        )


def _no_hosts(each: Missing) -> Finding:
    return Finding(
        f"{each.path} cannot be read: {each.why}",
        (each.place.label("named here"),),
        ("the deepspeed launcher goes on without it, and starts this node's devices alone",),
        "give the file, or run tunec where the training is started",
        consequence="silent",
    )


_UNRECOGNISED_OTHERS: Final = "say who reads it with --from NAME"
_OWN: Final = {
    "tunec": "it is a spec: `tunec plan` says what is wrong with it",
    "fleet": "it is a fleet: `tunec fleet` says what is wrong with it",
}
"""By the first key of tunec's own files."""


@rule(
    "unrecognised-file",
    "warning",
    "unclear",
    consumers=("tunec",),
    sources="compiler/lints/documents.py: by content, 60 % of the keys have to be known",
    reads=ALWAYS,
)
def unrecognised_file(run: LintContext) -> Iterator[Finding]:
    """A file that is of no kind that is known."""
    for each in run.unread:
        if "model_type" in each.keys:
            continue  # a model's own config, which rules about the model read
        said = f"its keys are {quoted(each.keys[:8], 'and')}" if each.keys else "it has no keys"
        yield Finding(
            f"{each.name} is no config that tunec knows",
            (Label("not checked", Span(each.name, 1, 1, 1, 1)),),
            (said, f"known: {', '.join(run.targets)}"),
            _OWN.get(each.keys[0], _UNRECOGNISED_OTHERS) if each.keys else _UNRECOGNISED_OTHERS,
        )


def findings(unused: Iterable[Allowance], known: Iterable[str]) -> Iterator[Finding]:
    """What is told of the allowances in files that hid nothing; `known` are all rules' names.

    Which these are is known only when every other rule has run, so that the engine calls this.
    """
    names = frozenset(known)
    for each in unused:
        if each.span is not None:
            what = "hides nothing" if each.name in names else "names no rule"
            label = Label("written here", each.span)
            yield Finding(f"`allow({each.name})` {what}", (label,), (), "remove it")


@rule(
    "unused-allowance",
    "note",
    "silent",
    consumers=("tunec",),
    sources="compiler/diagnostics/allow.py `suppress`",
    reads=(),
)
def unused_allowance(_: LintContext) -> Iterator[Finding]:
    """A comment allows what nothing finds; what is allowed is known only after all was found."""
    return iter(())
