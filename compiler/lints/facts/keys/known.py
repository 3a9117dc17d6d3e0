"""Which keys the readers know, in which releases, where, and which are read late."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import Final

from packaging.version import Version

from tunec.compiler.consumers.schemas import class_schema, ds_config_schema, known_releases
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.effective import releases_around
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence
from tunec.compiler.lints.schemas import Schema, paths_of

BF16_SCALING: Final = frozenset(
    f"bf16.{name}"
    for name in (
        *("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis"),
        *("min_loss_scale", "consecutive_hysteresis", "auto_cast", "fp16_master_weights_and_grads"),
    )
)
"""Keys of the fp16 block that people copy below bf16."""
_PROFILER: Final = "flops_profiler."
DEEPSPEED_RELEASES: Final = ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19")
_LIKE: Final = 0.88
"""How alike two names are (difflib's ratio) when one is taken for a misspelling of the other."""


def known_at(schema: Schema) -> tuple[str, ...]:
    """The keys that a mapping of this schema may hold."""
    return tuple(schema.get("properties", {}))


def is_whole(document: Document) -> bool:
    """Whether a document holds all that its reader is given, in the reader's own keys.

    A ds_config written inline, below `deepspeed:`, does; accelerate's keys for DeepSpeed do not,
    nor do the flags that SwissArmyTransformer puts into a file of its own.
    """
    if not document.is_view:
        return True
    return document.kind == "deepspeed" and kind_behind(document) not in (
        "accelerate",
        "launch",
        "sat",
    )


def kind_behind(document: Document) -> str:
    """The kind of the document that holds a document's keys: of a view, what it is a view of."""
    if not document.is_view:
        return document.kind
    held = (place for key in document.keys if (place := document.get(key)) is not None)
    first = next(held, None)
    return document.kind if first is None else first.document.kind


@cache
def deepspeed_paths(minor: str) -> frozenset[str]:
    """Every dotted key of ds_config.json in a minor release."""
    schema = ds_config_schema(minor)
    return frozenset(paths_of(schema)) | frozenset(schema.get("x-refused", ()))


@cache
def fields_of(stem: str, release: str) -> frozenset[str]:
    """The fields of a configuration class in a release, or in those before and after it."""
    around = releases_around(stem, release)
    return frozenset(name for each in around for name in class_schema(stem, each)["properties"])


def homes_of(run: LintContext, path: str) -> tuple[str, ...]:
    """Other paths of ds_config.json that end in the same name."""
    release = run.release("deepspeed").version
    minor = f"{release.major}.{release.minor}"
    name = path.rpartition(".")[2]
    if minor not in DEEPSPEED_RELEASES or "params" in path.split("."):
        return ()
    known = deepspeed_paths(minor)
    homes = sorted(each for each in known if each.rpartition(".")[2] == name and each != path)
    return tuple(each for each in homes if name not in ("enabled", "type", "params", "device"))


def known_in_other_releases(run: LintContext, kind: str, path: str) -> tuple[str, ...]:
    """The known releases that have a key which the release that runs has not, oldest first."""
    if kind == "deepspeed":
        return tuple(each for each in DEEPSPEED_RELEASES if path in deepspeed_paths(each))
    around = releases_around("training_arguments", str(run.release("transformers").version))
    if any(path in fields_of("training_arguments", each) for each in around):
        return ()
    known = sorted(known_releases("training_arguments"), key=Version)
    return tuple(each for each in known if path in fields_of("training_arguments", each))


def foreign_keys(run: LintContext, document: Document) -> Iterator[tuple[Place, str]]:
    """Keys that no release of TrainingArguments has, with the field each is a misspelling of."""
    around = releases_around("training_arguments", str(run.release("transformers").version))
    fields = frozenset(name for each in around for name in fields_of("training_arguments", each))
    every = frozenset(
        name
        for each in known_releases("training_arguments")
        for name in fields_of("training_arguments", each)
    )
    for path, place in document.found.items():
        if "." in path or path in every:
            continue
        likely = (*nearest(path, fields)[:1], *nearest(path, every)[:1])
        near = next((each for each in likely if _alike(path, each)), None)
        if near is not None and near not in document.found:
            yield place, near


def _alike(name: str, other: str) -> bool:
    return SequenceMatcher(None, name, other).ratio() >= _LIKE


def read_late(run: LintContext, path: str) -> Consequence | None:
    """What a value of another type comes to at such a key; None: it is as for every other key.

    deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_take_model_step`: `% self.steps_per_print()`;
    runtime/zero/stage_1_and_2.py, stage3.py `step`: `self.clip_grad > 0.`; accelerate 0.30.1 to
    1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: steps_per_print is inf, whatever
    the file says; transformers integrations/deepspeed.py `fill_match` compares gradient_clipping.
    """
    if path == "steps_per_print":
        return "silent" if run.deepspeed_reader == "trainer" else "step"
    if path == "gradient_clipping":
        return None if run.of("trainer") else "step"
    if path.startswith(_PROFILER) and path != f"{_PROFILER}enabled":
        is_on = run.effective("deepspeed", f"{_PROFILER}enabled").value is True
        is_compared = path.endswith("profile_step")
        return "step" if is_on and not is_compared else "silent"
    return None
