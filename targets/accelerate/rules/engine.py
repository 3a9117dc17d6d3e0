"""Rules about settings of an engine in accelerate's file that do not fit the started engine."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import is_autotuned, launches
from tunec.compiler.lints.facts.sharding import FsdpSettings, asked, engine, words
from tunec.compiler.lints.facts.training_loop import number_of
from tunec.compiler.lints.rule import Finding, keys, rule

_OF: Final[Mapping[str, str]] = {
    "deepspeed_config": "DEEPSPEED",
    "fsdp_config": "FSDP",
    "megatron_lm_config": "MEGATRON_LM",
}


@rule("warning", "silent", consumers=("accelerate",), reads=keys("accelerate", "fp8_config", *_OF))
def config_of_another_engine(run: LintContext) -> Iterator[Finding]:
    """One engine is configured, but another one is started."""
    for document in run.of("accelerate"):
        kind = engine(document)
        yield from _of_precision(document)
        for key, name in _OF.items():
            config = document.get(key)
            if kind is None or config is None or not config.node.fields or kind.value == name:
                continue
            if any(each.value is True for each in run.each("launch", f"flags.use_{name.lower()}")):
                continue
            yield Finding(
                f"{key} is not read with distributed_type {kind.value}",
                (config.key_label("not read"), kind.label("started", primary=False)),
                (),
                f"write distributed_type: {name}, or remove {key}",
                Fix((kind.replaced(name),), "unsafe"),
            )


def _of_precision(document: Document) -> Iterator[Finding]:
    """An fp8 recipe is given, but it is only read with the precision fp8."""
    recipe, precision = document.get("fp8_config"), document.get("mixed_precision")
    if recipe is None or not recipe.node.fields or precision is None or document.is_view:
        return
    if str(precision.value).lower() not in ("fp8", "none"):
        yield Finding(
            f"fp8_config is not read with mixed_precision {precision.value}",
            (recipe.key_label("not read"), precision.label("", primary=False)),
            (),
            "write mixed_precision: fp8, or remove fp8_config",
            Fix((precision.replaced("fp8"),), "unsafe"),
        )


_NAMING: Final = (
    ("accelerate", "deepspeed_config.deepspeed_config_file"),
    ("trainer", "deepspeed"),
)
"""The keys that name DeepSpeed's file: accelerate's own, and a trainer's, which passes it on."""


@rule(
    "error",
    "init",
    consumers=("accelerate", "transformers"),
    reads=tuple(f"{kind}:{key}" for kind, key in _NAMING),
)
def deepspeed_file_without_zero(run: LintContext) -> Iterator[Finding]:
    """The DeepSpeed file that accelerate reads has no ZeRO section."""
    yield from _inline(run)
    for file in _named(run):
        for each in run.of("deepspeed"):
            if each.is_view or not _has_the_name(each, file.value):
                continue
            if each.get("zero_optimization") is None and not is_autotuned(run, each):
                yield Finding(
                    f"{file.value} has no zero_optimization, which accelerate requires",
                    (file.label("refused"), *_first(each)),
                    (),
                    'write "zero_optimization": {"stage": 0} or the intended stage',
                )


def _inline(run: LintContext) -> Iterator[Finding]:
    """A mapping in place of DeepSpeed's file has no zero_optimization."""
    for place in run.each("trainer", "deepspeed"):
        if place.node.fields and "zero_optimization" not in place.node.fields:
            yield Finding(
                "deepspeed has no zero_optimization, which accelerate requires",
                (place.key_label("refused"),),
                (),
                "write zero_optimization: {stage: 0} or the intended stage",
            )


def _named(run: LintContext) -> Iterator[Place]:
    for kind, key in _NAMING:
        yield from (each for each in run.each(kind, key) if isinstance(each.value, str))


def _has_the_name(document: Document, path: str) -> bool:
    return PurePath(document.name).name == PurePath(path).name


def _first(document: Document) -> tuple[Label, ...]:
    first = next(iter(document.found.values()), None)
    return (first.key_label("this file", primary=False),) if first is not None else ()


_STRATEGIES: Final = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard")
_BY_NUMBER: Final = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard"}


@rule("error", "silent", consumers=("transformers",), reads=keys("trainer", "deepspeed", "fsdp"))
def engine_settings_overridden(run: LintContext) -> Iterator[Finding]:
    """accelerate and the trainer have different settings for the engine; the trainer's win."""
    given = next((each for each in run.each("trainer", "deepspeed") if each.value), None)
    for document in run.of("accelerate"):
        if given is not None and str(given.value).endswith(PurePath(document.name).name):
            continue  # the file itself is given to the trainer, and to no launcher
        if document.value("distributed_type") == "DEEPSPEED" and given is not None:
            yield from _deepspeed(run, document, given)
        yield from _other(run, document, given)
    every = list(asked(run))
    for launched in every:
        for trainer in every:
            if launched.who == "accelerate" and trainer.who == "trainer":
                yield from _fsdp(launched, trainer)


def _other(run: LintContext, document: Document, given: Place | None) -> Iterator[Finding]:
    """The launcher requests one engine, and the trainer the other."""
    kind = document.get("distributed_type")
    fsdp = next((each for each in run.each("trainer", "fsdp") if each.value), None)
    asked_for = {"FSDP": given, "DEEPSPEED": fsdp}.get(str(kind.value)) if kind else None
    if kind is not None and asked_for is not None:
        yield Finding(
            f"accelerate is set to {kind.value}, but the trainer sets {asked_for.path}",
            (kind.label(""), asked_for.label("the other engine", primary=False)),
            (
                "DeepSpeed is used, and FSDP is silently ignored"
                if kind.value == "FSDP"
                else "the trainer refuses fsdp where DeepSpeed is on",
            ),
            "keep one of them",
            consequence="silent" if kind.value == "FSDP" else "init",
            certain=not _is_one_of_several(run, asked_for),
        )


def _is_one_of_several(run: LintContext, given: Place) -> bool:
    """Whether a script starts several runs, so that the launcher may start another one."""
    at = given.document
    mine = [each for each in run.of("trainer") if each.name == at.name and not each.is_view]
    return at.format == "shell" and len(mine) > 1


def _deepspeed(run: LintContext, document: Document, given: Place) -> Iterator[Finding]:
    """Findings for the launcher's block or DeepSpeed file that differs from the trainer's file."""
    file = document.get("deepspeed_config.deepspeed_config_file")
    stage, other = document.get("deepspeed_config.zero_stage"), _stage_of(run)
    if file is not None:
        if PurePath(str(file.value)).name == PurePath(str(given.value)).name:
            return
        yield _overridden(file, given, "the file of the trainer is used", None)
    elif stage is not None:
        differs = other is not None and str(stage.value) != str(other.value)
        yield _overridden(stage, given, "nothing in this block is used", other if differs else None)


def _stage_of(run: LintContext) -> Place | None:
    """The ZeRO stage in the file that the trainer is given."""
    files = (each for each in run.of("deepspeed") if not each.is_view or each.origin is None)
    found = (each.get("zero_optimization.stage") for each in files)
    return next((each for each in found if each is not None), None)


def _fsdp(launched: FsdpSettings, trainer: FsdpSettings) -> Iterator[Finding]:
    place = launched.get("sharding_strategy")
    if place is None:
        return
    word = str(place.value).lower()
    word = _BY_NUMBER.get(word, word)
    others = [each for each in words(trainer.on) if each in _STRATEGIES]
    if word in _STRATEGIES and others and word not in others:
        yield _overridden(place, trainer.on, f"{others[0]} is used", trainer.on)


def _overridden(place: Place, given: Place, text: str, other: Place | None) -> Finding:
    """The finding for an overridden setting; `other` is the value in use, if known to differ."""
    key = place.path.rpartition(".")[2]
    second = given if other is None else other
    return Finding(
        f"{key} of accelerate is overridden by the trainer's {given.path}",
        (place.label("not used"), second.label("used", primary=False)),
        (f"the trainer hands its own settings to accelerate: {text}",),
        "set it in one place: leave it out of the trainer's arguments, or out of this file",
        severity=None if other is not None else "warning",
    )


_BLOCKS: Final = {
    "deepspeed_config": "",
    "fsdp_config": "fsdp_",
    "megatron_lm_config": "",
    "dynamo_config": "",
    "mpirun_config": "",
}
"""Blocks of the file, with the prefix that the launcher adds to a key that does not have it."""


@rule("error", "silent", consumers=("accelerate<1.5",), reads=keys("accelerate", *_BLOCKS))
def flag_overridden_by_file(run: LintContext) -> Iterator[Finding]:
    """An older launcher's file overrides a flag of `accelerate launch`."""
    files = [each for each in run.of("accelerate") if not each.is_view]
    for launch in launches(run, "accelerate"):
        for document in files:
            if _is_read(launch, document):
                yield from _overridden_flags(launch, document)


def _is_read(launch: Document, document: Document) -> bool:
    """Whether a command reads a file: it names the file, or reads the default file."""
    named = launch.get("flags.config_file")
    if named is None:
        return "flags.config_file" not in launch.unknown
    return _has_the_name(document, str(named.value))


def _overridden_flags(launch: Document, document: Document) -> Iterator[Finding]:
    for path, said in document.found.items():
        block, _, key = path.partition(".")
        if block not in _BLOCKS or not key or "." in key:
            continue
        before = _BLOCKS[block]
        flag = launch.get(f"flags.{key if before.strip('_') in key else before + key}")
        if flag is not None and not _are_alike(flag.value, said.value):
            yield _overridden_flag(flag, said)


def _are_alike(flag: Any, said: Any) -> bool:
    if str(flag).lower() == str(said).lower():
        return True
    number = number_of(flag)
    return number is not None and number == number_of(said)


def _overridden_flag(flag: Place, said: Place) -> Finding:
    name = flag.path.removeprefix("flags.")
    return Finding(
        f"--{name} {flag.value} is overridden: the file says {said.value}",
        (flag.label("overridden"), said.label("used", primary=False)),
        (
            (
                "before accelerate 1.5 the blocks of the file override the flags; keys "
                "outside a block, such as num_processes, come from the flags"
            ),
        ),
        f"write {flag.value} in the file, or remove {said.path} from it",
    )
