"""A file is named where another program's file is read."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TOLD: Final = {"accelerate": "accelerate's", "deepspeed": "DeepSpeed's", "axolotl": "Axolotl's"}
_OTHERS: Final = ("deepspeed", "axolotl", "llamafactory", "simpletuner", *TRAINERS)


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "accelerate"):
        at = document.get("flags.config_file")
        other = _named(run, at, "accelerate", _OTHERS)
        if at is not None and other is not None:
            yield _finding(
                at,
                other,
                "accelerate launch reads its own configuration there",
                "accelerate: a `distributed_type` must be specified, or: had unknown keys",
                _mend(other),
            )
        yield from _of_deepspeed(run, document.get("flags.deepspeed_config_file"))


def _of_deepspeed(run: Run, at: Place | None) -> Iterator[Finding]:
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


def _named(run: Run, at: Place | None, own: str, others: tuple[str, ...]) -> Document | None:
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


RULE = Rule(
    name="file-of-another-reader",
    severity="error",
    consequence="parse",
    consumers=("accelerate", "transformers"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/config/config_args.py `load_config_from_file`, "
            "`BaseConfig.from_json_file`, `from_yaml_file`: distributed_type must be specified"
        ),
        "transformers 4.40.2 to 5.23.0 deepspeed: HfTrainerDeepSpeedConfig(path), json.load",
    ),
    check=_check,
)
