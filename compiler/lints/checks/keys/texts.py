"""Numbers and booleans that are strings."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, TRL, Document, Place
from tunec.compiler.lints.effective import CLASSES
from tunec.compiler.lints.facts.known_keys import fields_of, keys_ever_in, kind_behind, read_late
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.compiler.lints.schemas import Fault, faults, kinds_of
from tunec.schemas.frozen import replace

_WORDS: Final = {"true": True, "false": False}
WORDS: Final = {
    **_WORDS,
    **dict.fromkeys(("yes", "y", "on"), True),
    **dict.fromkeys(("no", "n", "off"), False),
}
"""The booleans that strings stand for in a trainer's arguments, where strings are not converted."""
_PLAIN: Final = (
    *("activation_checkpointing", "optimizer", "scheduler", "checkpoint", "pipeline", "autotuning"),
    *("flops_profiler", "datastates", "nebula"),
)
"""Sections of ds_config.json that DeepSpeed reads as plain mappings; pydantic converts "true" and
"false" to booleans in the other blocks."""
_ADDED: Final = ("wall_clock_breakdown", "flops_profiler.enabled")
"""deepspeed 0.14.5 to 0.19.8 runtime/config.py: `get_wall_clock_breakdown(param_dict) |
self.flops_profiler_config.enabled`, a TypeError for a string."""


_SWITCHES: Final = frozenset(
    {
        *("crop", "disabled", "disable", "default", "prepend_instance_prompt"),
        *("only_instance_prompt", "is_regularisation_data", "is_regularization_data"),
        *("vae_cache_clear_each_epoch", "vae_cache_ondemand", "vae_cache_disable"),
        *("preserve_data_backend_cache", "scan_for_errors", "hash_filenames"),
    }
)
"""simpletuner 3.1.6 and 4.10.1 helpers/data_backend/config/image.py `from_dict`, factory.py: read
as `backend_dict.get("crop", False)` and tested with `if crop`."""


_OPTIONS: Final = tuple(
    f"{holder}_checkpointing_kwargs.{name}"
    for holder in ("gradient", "activation")
    for name in ("use_reentrant", "preserve_rng_state")
)
"""Options that torch 2.13.0 utils/checkpoint.py `checkpoint` tests without a conversion."""


@rule(
    "error",
    "silent",
    consumers=("transformers", "deepspeed", "peft"),
    reads=("simpletuner-data:*", "deepspeed:*", "trainer:*", "peft:*"),
)
def boolean_as_text(run: LintContext) -> Iterator[Finding]:
    """A boolean that is a string, and so always true."""
    for document in run.of("simpletuner-data"):
        for path, at in document.found.items():
            meant = _WORDS.get(at.value.strip().lower()) if isinstance(at.value, str) else None
            if meant is not None and path.rpartition(".")[2] in _SWITCHES:
                yield _as_text(path, at, meant=meant)
    for document in run.of("deepspeed", "hf", *TRL, "llamafactory", "peft"):
        if document.format == "shell" or document.is_view:
            continue
        yield from _of_options(document)
        for fault in faults(run, document):
            value = fault.place.value
            if fault.what != "type" or not isinstance(value, str):
                continue
            words = _WORDS if document.kind == "deepspeed" else WORDS
            meant = words.get(value.strip().lower())
            if meant is None or "boolean" not in kinds_of(fault.schema):
                continue
            if document.kind == "deepspeed" and _boolean_is_read(fault):
                continue
            yield _boolean_finding(fault, meant=meant)


def _of_options(document: Document) -> Iterator[Finding]:
    for path in _OPTIONS if document.kind in ("hf", *TRL) else ():
        at = document.get(path)
        meant = _WORDS.get(at.word.strip().lower()) if at is not None and at.word else None
        if at is not None and meant is not None:
            yield _as_text(path, at, meant=meant)


def _boolean_is_read(fault: Fault) -> bool:
    holder, dot, _ = fault.path.partition(".")
    return bool(dot) and holder not in _PLAIN


def _boolean_finding(fault: Fault, *, meant: bool) -> Finding:
    told = _as_text(fault.path, fault.place, meant=meant)
    return replace(told, severity=None, consequence="init") if fault.path in _ADDED else told


def _as_text(path: str, at: Place, *, meant: bool) -> Finding:
    return Finding(
        f"`{path}` is the text {at.value!r}" + ("" if meant else ", and that counts as true"),
        (at.label("text"),),
        ("nothing makes a truth value of it, and any text but an empty one is true",),
        f"write {str(meant).lower()} without quotes",
        Fix((at.replaced(meant),), "safe" if meant else "unsafe"),
        severity="note" if meant else None,  # what is meant is what comes of it
    )


_NUMBER: Final = re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?([eE][-+]?\d+)?|[-+]?\.\d+([eE][-+]?\d+)?")
_EXPONENT: Final = re.compile(r"[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+")
_COERCED: Final = frozenset({"llamafactory", "axolotl"})
"""Dialects whose reader converts such strings to numbers: OmegaConf's loader, pydantic's lax
mode."""
_BY_PYYAML: Final = "llamafactory<0.9.4"
"""llamafactory 0.9.1 to 0.9.3 hparams/parser.py `read_args`: yaml.safe_load; 0.9.4 and 0.9.5:
OmegaConf.load, which reads 1e-4 as a number, and does not convert quoted strings."""
_BY_OMEGACONF: Final = "OmegaConf.load(Path(sys.argv[1])"
"""A line that shows OmegaConf in a repository that holds the program's own source."""


_YAML_1_2: Final = "glm4"
"""The dialect whose reader reads such a string as a number: GLM-4 3f79b54 finetune/finetune.py
reads its file with ruamel.yaml, by YAML 1.2."""

_LATER: Final[Mapping[str, Consequence]] = {
    "save_total_limit": "save",
    "neftune_noise_alpha": "step",
    "per_device_eval_batch_size": "step",
    "eval_accumulation_steps": "step",
    **dict.fromkeys(("fp16.hysteresis", "fp16.loss_scale_window", "fp16.min_loss_scale"), "step"),
}
"""Fields that the trainer first reads when it saves, steps or evaluates: transformers 4.40.2 to
5.23.0 `rotate_checkpoints` (trainer.py, trainer_utils.py): save_total_limit <= 0."""


def number_of(text: str) -> int | float | None:
    """The number that a string represents, or None."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace("_", ""))
    return int(value) if value.is_integer() else value


@rule(
    "error",
    "init",
    consumers=("deepspeed", "transformers"),
    reads=("deepspeed:*", "trainer:*", "accelerate:*", "peft:*"),
)
def number_as_text(run: LintContext) -> Iterator[Finding]:
    """A number that is a string: quoted, or in a form that YAML 1.1 does not read as a number."""
    yield from _stage(run)
    for document in run.of("llamafactory"):
        if document.format != "shell" and not document.is_view:
            yield from _in_llamafactory(run, document)
    for document in run.of("accelerate"):
        if document.format == "yaml":
            yield from _bare(document)
    for document in run.of("deepspeed", *TRAINERS, "peft"):
        if {document.kind, kind_behind(document)} & _COERCED or document.format == "shell":
            continue
        checked = document.kind == "deepspeed" or document.kind in CLASSES
        for fault in faults(run, document) if checked else ():
            value = fault.place.value
            number = number_of(value) if fault.what == "type" and isinstance(value, str) else None
            wanted = set(kinds_of(fault.schema)) & {"integer", "number"}
            if number is None or not wanted or _number_is_read(run, document, fault):
                continue
            if not (kind_behind(document) == _YAML_1_2 and fault.place.node.written is not None):
                found = _number_finding(fault.place, fault.path, value, number)
                late = read_late(run, fault.path) if document.kind == "deepspeed" else None
                yield replace(found, consequence=late or _LATER.get(fault.path))


_OWN: Final[Mapping[str, Consequence]] = {
    "lora_rank": "load",
    "lora_alpha": "load",
    "lora_dropout": "load",
    "quantization_bit": "load",
    "cutoff_len": "init",
    "max_samples": "init",
    "val_size": "init",
}
"""Fields of LLaMA-Factory's own classes, which do not check values, and the moment at which each is
first compared: peft's LoraConfig, model_utils/quantization.py, data/processor, data/loader.py."""


def _in_llamafactory(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report fields that the trainer gets unconverted, and some of LLaMA-Factory's own."""
    for path, consequence in _OWN.items():
        at = document.get(path)
        is_text = at is not None and isinstance(at.value, str) and at.node.written is None
        own = number_of(at.value) if at is not None and is_text else None
        if at is not None and own is not None:
            yield replace(_number_finding(at, path, at.value, own), consequence=consequence)
    of_trainer = fields_of("training_arguments", str(run.release("transformers").version))
    for fault in faults(run, document):
        value = fault.place.value
        number = number_of(value) if fault.what == "type" and isinstance(value, str) else None
        wanted = {"integer", "number"} & set(kinds_of(fault.schema))
        if number is None or not wanted or fault.path not in of_trainer:
            continue
        is_bare = fault.place.node.written is not None
        is_old = run.runs(_BY_PYYAML)
        if is_bare and (is_old is False or (is_old is None and run.own.holds(_BY_OMEGACONF))):
            continue
        found = _number_finding(fault.place, fault.path, value, number)
        yield replace(
            found,
            consequence=_LATER.get(fault.path),
            severity="note" if is_bare and is_old is None else None,
            notes=(*found.notes, *(("0.9.4 and later read it as a number",) if is_bare else ())),
        )


def _stage(run: LintContext) -> Iterator[Finding]:
    """Report a stage that is a string.

    pydantic 1 refuses it (deepspeed before 0.15), pydantic 2 converts it; the trainer compares the
    unconverted string with 2 and 3.
    """
    is_old, is_plain = run.runs("deepspeed<0.15"), run.deepspeed_reader == "plain"
    for document in run.of("deepspeed"):
        at = document.get("zero_optimization.stage")
        if at is None or document.is_view or not isinstance(at.value, str):
            continue
        if at.value in ("0", "1", "2", "3") and is_old:
            # pydantic 1 has no such word among the stages
            yield _number_finding(at, at.path, at.value, int(at.value))
        elif at.value in ("2", "3") and not is_plain:
            yield replace(
                _number_finding(at, at.path, at.value, int(at.value)),
                notes=(
                    "transformers and accelerate compare it with 2 and 3 as numbers: it is neither",
                    *(
                        ("the model is loaded whole, and saved as one rank's part",)
                        if at.value == "3"
                        else ()
                    ),
                ),
                consequence="silent",
                certain=run.deepspeed_reader == "trainer",
            )


def _bare(document: Document) -> Iterator[Finding]:
    """Report numbers with an exponent in a file whose schema does not mark numbers.

    Blocks of the file have no nested blocks: keys below that level are not read. DeepSpeed would
    refuse a key that a block does not have, if the key were passed on.
    """
    for path, place in document.found.items():
        text = place.node.written if path.count(".") < 2 else None
        if isinstance(place.value, str) and text and _EXPONENT.fullmatch(text):
            found = _number_finding(place, path, text, number_of(text) or 0)
            block, _, name = path.rpartition(".")
            is_read = not block or name in keys_ever_in(block)
            yield found if is_read else replace(found, severity="note")


_INTERPOLATED: Final = re.compile(r":\s*[\"']?\$\{[\w.:,]+\}")
"""A value that OmegaConf fills in: omegaconf 2.1 to 2.3 _utils.py `get_yaml_loader` reads 5e8 and
1e-5 as numbers, which YAML 1.1 reads as strings."""


def _number_is_read(run: LintContext, document: Document, fault: Fault) -> bool:
    """Whether the reader converts the string; in DeepSpeed's blocks pydantic converts digits."""
    if fault.place.node.written is not None and _INTERPOLATED.search(document.text):
        return True
    if document.kind != "deepspeed":
        return _is_converted(run, document, fault)
    is_half = fault.path.startswith(("fp16.", "bf16."))
    if is_half and document.value(f"{fault.path[:4]}.enabled") is False:
        return True  # nobody looks at it
    is_checked = is_half and fault.is_checked
    if not is_checked and not fault.path.startswith(("zero_optimization.", "aio.")):
        return False
    kinds = kinds_of(fault.schema)
    text = str(fault.place.value).strip().lstrip("+-")
    if run.runs("deepspeed<0.15") is not True:  # pydantic 2 takes 8.0 for 8, also in quotes
        text = re.sub(r"\.0*\Z", "", text)
    return "number" in kinds or text.isdigit()


_BY_ARGPARSE: Final = "trl<0.9"
"""trl 0.9.6 to 1.16.0 `TrlParser.set_defaults_with_config` makes the file's values defaults of an
argparse parser, which converts a string default to the field's type, as it does a flag's word:
1.16.0, run with 2e-5, "0.1" and "4". 0.8.6 `YamlConfigParser.merge_dataclasses` sets them
unconverted; so does the handbook's own parser."""


def _is_converted(run: LintContext, document: Document, fault: Fault) -> bool:
    """Whether TRL's parser converts the string with float() or int()."""
    is_mixed = document.get("dataset_mixer") is not None
    is_nested, is_handbook = "." in fault.path, is_mixed and not run.own.holds("TrlParser(")
    if document.kind not in TRL or is_nested or is_handbook or run.runs(_BY_ARGPARSE):
        return False
    return (
        "number" in kinds_of(fault.schema)
        or re.fullmatch(r"[-+]?\d[\d_]*", str(fault.place.value).strip()) is not None
    )


def _written(number: int | float) -> str:
    """A number in a form that YAML 1.1 reads as a number: 2.0e-05, not 2e-05."""
    text = str(number)
    return text if "." in text else text.replace("e", ".0e")


def _number_finding(place: Place, path: str, text: str, number: int | float) -> Finding:
    is_bare = place.node.written is not None
    why = (
        "YAML 1.1 takes a number with an exponent for text unless it has a point and a sign: 5.0e+8"
        if is_bare
        else "in quotes it is text"
    )
    return Finding(
        f"`{path}` is the text {text!r}, and not the number {number:g}",
        (place.label("text"),),
        (why,),
        f"write {_written(number)}",
        Fix((place.replaced(number),), "safe"),
    )


_KEYS: Final = ("eval_strategy", "evaluation_strategy", "save_strategy", "logging_strategy")


@rule(
    "error", "parse", consumers=("transformers", "axolotl"), reads=keys("trainer|axolotl", *_KEYS)
)
def no_read_as_false(run: LintContext) -> Iterator[Finding]:
    """An unquoted `no`, which YAML 1.1 reads as false."""
    for document in run.of("hf", *TRL, "llamafactory", "axolotl"):
        if document.is_view:
            continue
        for key in _KEYS:
            place = document.get(key)
            if place is not None and place.value is False and document.format == "yaml":
                yield Finding(
                    f"`{key}` is false, and not the word no",
                    (place.label("read as false"),),
                    ("YAML 1.1 reads an unquoted no as false, and false is no strategy",),
                    'write "no"',
                    Fix((place.replaced("no"),), "safe"),
                )
