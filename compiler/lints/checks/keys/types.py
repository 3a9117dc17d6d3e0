"""Values of a type that the reader does not take, and missing required fields."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isfinite
from typing import Final

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.diagnostics.diagnostic import Fix, Label, Severity
from tunec.compiler.diagnostics.wording import joined, shown
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.checks.keys.texts import WORDS, number_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.effective import CLASSES
from tunec.compiler.lints.facts.known_keys import beyond_the_schema, is_whole, read_late
from tunec.compiler.lints.facts.launch import TUNED, is_autotuned
from tunec.compiler.lints.formats import MAPPINGS
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.compiler.lints.schemas import Fault, faults, is_everywhere, kinds_of, schemas

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "a mapping",
}

_PATHS: Final = frozenset({"output_dir", "deepspeed"})
"""Paths that the class itself processes: `os.path.expanduser` refuses anything but a string."""
_BLOCKS: Final = frozenset(
    {
        *("optimizer", "scheduler", "zero_optimization", "fp16", "activation_checkpointing"),
        *("autotuning", "checkpoint", "comms_logger", "comet", "csv_monitor", "data_efficiency"),
        *("data_types", "flops_profiler", "hybrid_engine", "pipeline", "tensorboard", "timers"),
        *("wandb", "weight_quantization"),
    }
)
"""deepspeed 0.14.5 to 0.19.8 runtime/config.py and precision_config.py `get_float16_config`: a
block that is present is read as a mapping."""
_ONCE_PLAIN: Final = frozenset({"bf16"})
"""Also read as a mapping, until runtime/precision_config.py `get_bfloat16_config` took null as a
missing block."""
_AT_LEAST_ONE: Final = frozenset(
    {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}
)
"""deepspeed 0.14.5 to 0.19.8 runtime/config.py `_batch_assertion`: false is 0, and refused."""
_ASKED_HOW_MANY: Final[Mapping[str, str]] = {
    "per_device_train_batch_size": "",
    "per_device_eval_batch_size": "",
    "gradient_accumulation_steps": "",
    "warmup_steps": "",
    "dataloader_num_workers": "",
    "logging_steps": "logging_strategy",
    "save_steps": "save_strategy",
}
"""Numbers that transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments` compares or
multiplies, each with the strategy that has to be `steps` for that."""
_ASKED_AS_TRUTH: Final = frozenset(
    {
        *("wall_clock_breakdown", "flops_profiler.enabled"),
        "checkpoint.parallel_write.pipeline_stage",
    }
)
"""deepspeed 0.14.5 to 0.19.8 runtime/config.py: the first two are joined by `|`; the third is
looked up in [True, False]."""
_PRINTED: Final = "steps_per_print"
"""Steps are divided by this number, which may be of any numeric type."""
_AS_TRUTH: Final = frozenset({"0", "1", "on", "off", "t", "f", "y", "n", "yes", "no"})
"""Words besides true and false that pydantic reads as booleans in DeepSpeed's blocks."""
_BY_ARGPARSE: Final = frozenset({"yes", "true", "t", "y", "1", "no", "false", "f", "n", "0"})
"""transformers 4.40.2 to 5.23.0 hf_argparser.py `string_to_bool`."""
_KINDS: Final = ("hf", *TRL, "llamafactory")
_SCALE: Final = "fp16.loss_scale"
"""The key whose numbers the rule loss-scale-refused checks instead."""


@rule(
    "error",
    "init",
    consumers=("deepspeed", "transformers", "peft"),
    reads=("deepspeed:*", "trainer:*", "peft:*", "accelerate:fsdp_config", "launch:flags.use_fsdp"),
)
def value_of_another_type(run: LintContext) -> Iterator[Finding]:
    """A value of a type that its reader does not take."""
    yield from _words_for_a_file(run)
    yield from beyond_the_schema(run)
    for document in run.of("deepspeed", *_KINDS, "peft"):
        if not is_whole(document):
            continue
        if document.format == "shell":
            told = (each for each in faults(run, document) if each.what == "type")
            yield from (_of_flag(each) for each in told if _is_refused_flag(each))
            continue
        tuned = TUNED if document.kind == "deepspeed" and is_autotuned(run, document) else ()
        for fault in faults(run, document):
            is_tried = fault.place.node.items is not None and fault.path.startswith(tuned)
            is_taken = is_tried or (document.kind in _KINDS and _is_empty(fault.place.node))
            if fault.what == "type" and not is_taken and not _is_spoken_of(run, document, fault):
                yield _value_finding(run, document, fault)


def _is_empty(node: Node) -> bool:
    """An empty list or block, which a class of data takes as it takes nothing."""
    return node.items == () or node.fields == {}


def _words_for_a_file(run: LintContext) -> Iterator[Finding]:
    """Report `deepspeed: "8"`: the trainer looks for a file, and then parses the string as JSON."""
    for place in run.each("trainer", "deepspeed"):
        word = place.value if isinstance(place.value, str) else ""
        if number_of(word) is not None or word.lower() in ("true", "false", "null"):
            yield Finding(
                f"`deepspeed` names a file, and is the text {word!r}",
                (place.label("no file, and no JSON object"),),
                (),
                "write the path of ds_config.json, or remove it",
                consequence="parse",
            )


def _is_spoken_of(run: LintContext, document: Document, fault: Fault) -> bool:
    """Whether another rule reports the fault, or the reader understands the word."""
    value, kinds = fault.place.value, kinds_of(fault.schema)
    if document.kind == "deepspeed" and _is_passed_over(run, document, fault.path):
        return True
    if isinstance(value, bool) and document.kind == "deepspeed" and fault.path == _SCALE:
        return True
    if isinstance(value, str):
        is_number = number_of(value) is not None and {"integer", "number"} & set(kinds)
        words = ("true", "false") if document.kind == "deepspeed" else WORDS
        is_word = value.strip().lower() in words and "boolean" in kinds
        is_item = "array" in kinds and document.kind != "deepspeed"  # one word for a list of one
        is_block = document.kind == "deepspeed" and fault.is_checked
        is_flag = is_block and "boolean" in kinds and value.lower() in _AS_TRUTH
        return bool(is_number or is_word or is_item or is_flag)
    if value in (0, 1) and "boolean" in kinds and document.kind in _KINDS:
        return True  # a class of data checks no types, and Python takes them for false and true
    if value is None and document.kind == "deepspeed" and _refuses_null(fault):
        return False
    if value is None and document.kind != "deepspeed" and "enum" in fault.schema:
        return False  # the word is looked up among the words
    if value is None and document.kind != "deepspeed" and _is_asked_how_many(document, fault.path):
        return False
    if value is None or not kinds:
        return True  # a key without a value is as if it were absent, for most readers
    if fault.path in _PATHS or (document.format == "json" and "enum" in fault.schema):
        return False
    # `no` in YAML has its own rule
    return document.kind != "deepspeed" and "string" in kinds and isinstance(value, bool)


def _is_passed_over(run: LintContext, document: Document, path: str) -> bool:
    """Whether nothing reads a path.

    It is in bf16's old block beside a `bf16` block (`BFLOAT16_OLD`), or configures DeepSpeed's
    recomputation under the Trainer, which never calls `deepspeed.checkpointing.configure`.
    """
    is_trainers = path.startswith("activation_checkpointing.") and run.deepspeed_reader == "trainer"
    return is_trainers or (path.startswith("bfloat16") and document.value("bf16") is not None)


def _is_asked_how_many(document: Document, path: str) -> bool:
    strategy = _ASKED_HOW_MANY.get(path)
    if strategy is None or document.hides(strategy):
        return False
    return bool(document.value(strategy, "steps") == "steps")


def _refuses_null(fault: Fault) -> bool:
    """Whether null fails: in blocks that check their values, and in plain ones read as mappings."""
    is_open = fault.path.startswith(("optimizer.", "scheduler."))
    is_plain = fault.schema.get("x-unknown") == "ignored"
    is_block = fault.path in _BLOCKS or (is_plain and fault.path in _ONCE_PLAIN)
    return (fault.is_checked and not is_open) or is_block


def _consequence(run: LintContext, document: Document, fault: Fault) -> Consequence:
    """What follows: Python counts true as 1, tests any value, and reads `aio` for NVMe only."""
    value, kinds = fault.place.value, set(kinds_of(fault.schema))
    if _is_old_zero(document, fault):
        # accelerate `HfDeepSpeedConfig.get_value` looks into it as a mapping
        return "parse" if run.deepspeed_reader == "trainer" else "silent"
    is_deepspeed = document.kind == "deepspeed"
    late = read_late(run, fault.path) if is_deepspeed else None
    if late is not None:
        return "silent" if _is_countable(fault.path, value) else late
    if fault.path in _ASKED_AS_TRUTH and not isinstance(value, int):
        return "init"
    is_counted = isinstance(value, bool) and bool(kinds & {"integer", "number"})
    if is_counted:
        return "init" if value is False and fault.path in _AT_LEAST_ONE else "silent"
    if is_deepspeed and _is_cut(run, fault):
        return "silent"
    if "boolean" in kinds and (value in (0, 1) or not (is_deepspeed and fault.is_checked)):
        return "silent"
    if fault.path == "deepspeed" and not value:
        return "silent"  # as if it were absent
    if is_deepspeed and fault.path.startswith("aio.") and not _is_on_nvme(run):
        return "silent"
    return "init"


def _is_countable(path: str, value: object) -> bool:
    """Whether a number can be calculated with: true is 1, false is 0; steps_per_print is not 0."""
    if path == _PRINTED:
        return isinstance(value, int | float) and value != 0
    return isinstance(value, bool)


def _is_cut(run: LintContext, fault: Fault) -> bool:
    """Whether deepspeed 0.14, whose blocks use pydantic 1, silently converts a value.

    Where an integer is expected, a float loses its fraction; where a string is expected, a number
    or boolean becomes one.
    """
    value = fault.place.value
    is_text = "string" in kinds_of(fault.schema) and "enum" not in fault.schema
    if is_text and isinstance(value, bool | int | float):
        return fault.is_checked and run.runs("deepspeed<0.15") is True
    is_fraction = isinstance(value, float) and isfinite(value)
    is_number = is_fraction and "integer" in kinds_of(fault.schema) and "enum" not in fault.schema
    return is_number and fault.is_checked and run.runs("deepspeed<0.15") is True


def _is_on_nvme(run: LintContext) -> bool:
    blocks = ("offload_optimizer", "offload_param")
    found = (run.effective("deepspeed", f"zero_optimization.{name}.device") for name in blocks)
    return any(each.value == "nvme" for each in found)


def _is_old_zero(document: Document, fault: Fault) -> bool:
    """Whether the fault is `zero_optimization: true`: stage 1 (`read_zero_config_deprecated`)."""
    return (
        document.kind == "deepspeed"
        and fault.path == "zero_optimization"
        and isinstance(fault.place.value, bool)
    )


def _of_flag(fault: Fault) -> Finding:
    """The finding for a word on a command line that argparse cannot convert to the field's type."""
    if fault.place.node.items is not None:
        return _of_words(fault, len(fault.place.node.items))
    wanted = joined(_WORDS[kind] for kind in kinds_of(fault.schema) if kind != "null")
    return Finding(
        f"--{fault.path} has to be {wanted}, and is {shown(fault.place.value)}",
        (fault.place.label("refused"),),
        ("argparse makes the value of the word: int, float, or yes and no, true and false",),
        f"write {wanted}",
        consequence="parse",
    )


def _of_words(fault: Fault, number: int) -> Finding:
    return Finding(
        f"--{fault.path} takes one word, and is given {number}",
        (fault.place.label("unrecognized arguments"),),
        ("what stands between blanks is a word of its own, unless quotes are around it",),
        "write one word, or put quotes around all of it",
        consequence="parse",
    )


def _is_refused_flag(fault: Fault) -> bool:
    kinds = set(kinds_of(fault.schema))
    if isinstance(fault.place.value, list):
        are_words = all(str(each) == str(each).strip() != "" for each in fault.place.value)
        return are_words and bool(kinds) and not kinds & {"array", "object"}
    is_plain = bool(kinds & {"boolean", "integer", "number"})
    is_text = isinstance(fault.place.value, str) and fault.place.value.strip(".") != ""
    if is_text and "boolean" in kinds and fault.place.value.lower() in _BY_ARGPARSE:
        return False
    if is_text and _is_number(fault.place.value, is_whole="number" not in kinds):
        return False  # Python reads 5_000, and YAML's 1.2 does not
    is_share = isinstance(fault.place.value, float) and "number" not in kinds
    return is_plain and (is_text or is_share) and not kinds & {"string", "array", "object"}


def _is_number(text: str, *, is_whole: bool) -> bool:
    """Whether Python makes a number of a text: argparse's `type=int` or `type=float`."""
    with suppress(ValueError):
        return (int if is_whole else float)(text) is not None
    return False


def _value_finding(run: LintContext, document: Document, fault: Fault) -> Finding:
    value, kinds = fault.place.value, kinds_of(fault.schema)
    wanted = joined(_WORDS[kind] for kind in kinds if kind != "null")
    is_whole = isinstance(value, float) and isfinite(value) and "integer" in kinds
    near = round(value) if is_whole and isinstance(value, float) else None
    return Finding(
        f"`{fault.path}` has to be {wanted}, and is {shown(value)}",
        (fault.place.label("of another type"),),
        ("the old form: true is stage 1, false is stage 0",)
        if _is_old_zero(document, fault)
        else (),
        f"write {near}" if near is not None else f"write {wanted}",
        Fix((fault.place.replaced(near),), "unsafe") if near is not None else None,
        consequence=_consequence(run, document, fault),
        severity=_severity(run, document, fault),
    )


def _severity(run: LintContext, document: Document, fault: Fault) -> Severity | None:
    """A note if DeepSpeed reads the old form, a warning if only some releases refuse the value."""
    if _is_old_zero(document, fault) and run.deepspeed_reader != "trainer":
        return "note"
    return None if is_everywhere(run, document, fault) else "warning"


@rule("error", "parse", consumers=("transformers",), reads=keys("trainer", "deepspeed", *MAPPINGS))
def json_text_refused(run: LintContext) -> Iterator[Finding]:
    """A mapping is given as a string that is not JSON."""
    for document in run.of("trainer"):
        for key in (*MAPPINGS, "deepspeed"):
            place = document.get(key)
            text = None if place is None else place.word
            if place is None or document.is_view or text is None or not text.startswith("{"):
                continue
            why = _fault(text)
            if why is not None and "$" not in text:
                yield Finding(
                    f"{key} is no JSON: {why}",
                    (place.label("refused"),),
                    (
                        "text that begins with a brace is read as JSON",
                        *(("this is Python's way to write it",) if _is_python(text) else ()),
                    ),
                    f"write '{_as_json(text)}'" if _is_python(text) else "write it as JSON",
                )


def _fault(text: str) -> str | None:
    try:
        found = json.loads(text)
    except RecursionError:
        return "nested too deeply"
    except ValueError as fault:
        return str(fault).partition(":")[0].lower()
    return None if isinstance(found, dict) else "it is no mapping"


def _is_python(text: str) -> bool:
    return _fault(_as_json(text)) is None


def _as_json(text: str) -> str:
    """The text with Python's quotes and constants replaced by JSON's."""
    changed = text.replace("'", '"')
    for old, new in (("True", "true"), ("False", "false"), ("None", "null")):
        changed = changed.replace(old, new)
    return changed


@rule("warning", "parse", consumers=("transformers", "trl"), reads=("trainer:*",))
def required_field_missing(run: LintContext) -> Iterator[Finding]:
    """A field that a class of this release requires is missing."""
    every = [each for each in run.of("trainer") if not each.is_view]
    if any(each.unknown & {"flags", "output_dir"} for each in every):
        return
    for document in run.of("hf", *TRL):
        (stem, package), *_ = CLASSES.get(document.kind, ()) or (("", ""),)
        if document.is_view or not package or not run.release(package).is_named:
            continue
        if run.release(package).is_before(known_releases(stem)[0]):
            continue  # the class of that release is not known
        if document.format == "shell" and _PASSED_ON.search(document.text):
            continue  # whoever starts the script gives the rest
        if document.format != "shell" and run.own.holds("TrainingArguments(**"):
            continue  # a script of its own makes the arguments, and may give the rest
        around = schemas(run, document)
        needed = set(around[0].get("required", ())) if around else set()
        for name in sorted(needed.intersection(*(each.get("required", ()) for each in around))):
            if all(each.get(name) is None for each in every):
                yield _required_finding(run, document, name, package)


_PASSED_ON: Final = re.compile(r"\$[@*]|\$\{[@*]\}")


def _required_finding(run: LintContext, document: Document, name: str, package: str) -> Finding:
    is_shell = document.format == "shell"
    start = document.lacking(name).span if is_shell else document.start()
    return Finding(
        f"{run.release(package)} needs `{name}`, and none is given",
        (Label("without it", start, "", True),),
        (
            f"error: the following arguments are required: --{name}"
            if is_shell
            else f"TypeError: missing 1 required positional argument: '{name}'",
        ),
        f"write {'--' if is_shell else ''}{name}{' ' if is_shell else ': '}out",
    )
