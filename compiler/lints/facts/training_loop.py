"""Numbers of a training loop, which preference method it follows, and Axolotl's documents."""

import json
import re
from collections.abc import Iterable, Iterator
from math import ceil, isfinite
from pathlib import PurePath
from typing import Any, Final, TypeGuard

from msgspec import Struct

from tunec.compiler.consumers.schemas import parsers_around
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.rule import keys


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


_NEVER: Final = re.compile(r"9{4,}|10{5,}|\d+0{2,}1")


def means_never(interval: int, total: int) -> bool:
    """Whether an interval is one that people write to turn something off: 999999, 1000000, 2001."""
    return _NEVER.fullmatch(str(interval)) is not None and interval > total


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_positive(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number above zero."""
    return is_number(value) and value > 0


def number_of(value: Any) -> float | None:
    """The number that a reader makes of a value, which may be a text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def trainer_batch(run: LintContext) -> tuple[Effective, Effective] | None:
    """The trainer's micro batch and accumulation, if both are known whole numbers above zero."""
    micro = run.effective("trainer", "per_device_train_batch_size")
    steps = run.effective("trainer", "gradient_accumulation_steps")
    if not all(is_whole(each.value) and each.value > 0 for each in (micro, steps)):
        return None
    return micro, steps


def engine_of(run: LintContext) -> str | None:
    """`DeepSpeed` or `FSDP`, if the files say that it shards the run."""
    if run.of("deepspeed") or run.said("trainer", "deepspeed"):
        return "DeepSpeed"
    named = [run.said("trainer", "fsdp"), run.said("accelerate", "fsdp_config")]
    return "FSDP" if any(each is not None and each.value for each in named) else None


class ScheduleNumber(Struct, frozen=True):
    """A number of the schedule, and the key that gives it."""

    value: int
    place: Place


def total_steps(run: LintContext) -> ScheduleNumber | None:
    """`max_steps`, if it decides the length of training."""
    place = run.said("trainer", "max_steps")
    if place is None or not is_whole(place.value) or place.value < 1:
        return None
    return ScheduleNumber(place.value, place)


def warmup_place(run: LintContext) -> Place | None:
    """The key of the warm-up that is used: steps take precedence over a share."""
    for key in ("warmup_steps", "warmup_ratio"):
        place = run.said("trainer", key)
        if place is not None and is_positive(place.value):
            return place
    return None


def warmup_steps(run: LintContext, total: int | None) -> ScheduleNumber | None:
    """Steps of warm-up by `get_warmup_steps`.

    None if there are none, or if it is a share of an unknown number.
    """
    place = warmup_place(run)
    if place is None or not is_number(place.value) or not isfinite(place.value):
        return None
    if place.value >= 1 and place.path.endswith("steps"):
        return ScheduleNumber(int(place.value), place)
    return None if total is None else ScheduleNumber(ceil(total * place.value), place)


def is_overridden(run: LintContext) -> bool:
    """Whether DeepSpeed's own scheduler runs instead of the trainer's."""
    return run.said("deepspeed", "scheduler") is not None


def arguments_of(place: Place | None) -> dict[str, Any] | None:
    """`lr_scheduler_kwargs` as a mapping, also from the JSON of a flag; None: not known."""
    if place is None or place.value is None:
        return {}
    value = place.value
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


_FLAGS: Final = ("model_max_length", "block_size", "max_seq_length", "max_seq_len")
"""What scripts around transformers' Trainer call it: tatsu-lab/stanford_alpaca train.py, lm-sys/
FastChat 047b6e4 fastchat/train/train.py, haotian-liu/LLaVA llava/train/train.py; transformers
examples/pytorch run_clm.py; DeepSpeedExamples and Chinese-LLaMA-Alpaca."""


def longest(run: LintContext) -> Any:
    """Tokens of the longest sample; None if no file has them."""
    at = flag(run)
    return run.value("data.sequence", at.value if at is not None else None)


def flag(run: LintContext) -> Place | None:
    """Where a script's flag gives it."""
    return run.said("hf", *_FLAGS)


STRATEGIES: Final = ("eval_strategy", "evaluation_strategy")
GIB: Final = 1 << 30


def strategy_of(document: Document) -> Place | None:
    """Where a document says when it evaluates."""
    return next((each for name in STRATEGIES if (each := document.get(name))), None)


def is_beside_a_file(document: Document) -> bool:
    """Whether flags accompany a file of arguments (`--config`), which holds what they leave out."""
    return document.format == "shell" and document.get("config") is not None


def never_evaluates(document: Document) -> bool:
    """Whether the trainer does not evaluate: explicitly, or by the default, no."""
    if document.unknown & set(STRATEGIES):
        return False
    if strategy_of(document) is None and is_beside_a_file(document):
        return False
    said = strategy_of(document)
    return said is None or said.value in ("no", False)


def evaluates(run: LintContext) -> bool:
    """Whether a document requests evaluations."""
    said = [strategy_of(each) for each in run.of("trainer")]
    return any(each is not None and each.value in ("steps", "epoch") for each in said)


def is_loss(name: object) -> bool:
    """Whether a metric's name is that of a loss, which the trainer computes itself."""
    return isinstance(name, str) and name.endswith("loss")


RECOMPUTED: Final = (
    *keys("trainer|axolotl|minicpm-v|simpletuner", "gradient_checkpointing"),
    *keys("trainer|axolotl", "activation_checkpointing", "gradient_checkpointing_kwargs"),
    *keys("trainer|axolotl", "fsdp_config", "use_reentrant_gc"),
    *("accelerate:fsdp_config", "llamafactory:disable_gradient_checkpointing"),
    *("glm4:training_args", "sat:checkpoint_activations", "llama-cookbook:enable_fsdp"),
)
"""The `reads` of rules about recomputation: keys that turn it on or name its variant."""
_REENTRANT = ("gradient_checkpointing_kwargs.use_reentrant", "use_reentrant_gc")


def recomputes(run: LintContext) -> bool:
    """Whether the run recomputes its activations."""
    return bool(run.value("activation_checkpointing.mode") == "layer")


def reentrant(run: LintContext) -> bool | None:
    """Whether by the reentrant variant: as written, or the release's default; None: unknown."""
    value = run.value("activation_checkpointing.reentrant")
    return value if isinstance(value, bool) else None


def reentrant_place(run: LintContext) -> Place | None:
    """Where a file names the variant, or else turns recomputation on."""
    for kind in ("trainer", "axolotl"):
        found = run.said(kind, *_REENTRANT)
        if found is not None:
            return found
    return checkpointing_place(run)


def checkpointing_place(run: LintContext) -> Place | None:
    """Where a file turns recomputation on."""
    return run.place(run.observed("activation_checkpointing.mode"))


PAIRED: Final = ("dpo", "kto")
"""Methods that compare the policy with a reference model."""
GROUPED: Final = ("grpo", "gdpo", "rloo")
"""Methods that compare the answers to one prompt."""
PREFERENCES: Final = (
    *("dpo:*", "grpo:*", "kto:*", "rloo:*", "reward:*", "llamafactory:stage", "axolotl:rl"),
)
"""The `reads` of rules about preference methods: without one of these there is none."""


def grouped(*names: str) -> tuple[str, ...]:
    """The `reads` of rules about keys of GRPO or RLOO, as `trl` looks them up."""
    return (*keys("grpo|rloo", *names), *keys("axolotl", *(f"trl.{each}" for each in names)))


_SFT: Final = re.compile(r"(?:^|[_.-])sft(?:[_.-]|$)")


def method(document: Document) -> str:
    """`dpo`, `grpo`, `rloo`, `kto`, `ppo`, `rm`, `orpo`, `simpo`, or empty for other training.

    A file of TRL's classes whose own name says SFT is that, whatever stray key it has.
    """
    if document.kind in TRL and _SFT.search(PurePath(document.name).stem.lower()):
        return ""
    if document.kind in ("dpo", "grpo", "kto", "rloo"):
        return document.kind
    if document.kind == "reward":
        return "rm"
    if document.kind == "llamafactory":
        stage, loss = document.value("stage", "sft"), document.value("pref_loss")
        is_free = stage == "dpo" and loss in ("orpo", "simpo")
        return str(loss) if is_free else str(stage) if stage not in ("sft", "pt") else ""
    if document.kind == "axolotl":
        word = str(document.value("rl") or "").lower()
        if not word and document.value("reward_model"):
            return "rm"
        return "dpo" if word == "ipo" else word
    return ""


def preferences(run: LintContext) -> Iterator[tuple[Document, str]]:
    """Each document that requests a preference method, with the method."""
    for document in run.documents:
        if not document.is_view and (found := method(document)):
            yield document, found


def trl(document: Document, key: str) -> Place | None:
    """A key of TRL's own: at the top, or below `trl` in Axolotl's file."""
    found = document.get(f"trl.{key}") if document.kind == "axolotl" else document.get(key)
    return None if found is None or found.value is None else found


def shared(document: Document, key: str) -> Place | None:
    """A key of TrainingArguments under the dialect's own name."""
    own = {"per_device_train_batch_size": "micro_batch_size"} if document.kind == "axolotl" else {}
    found = document.get(own.get(key, key))
    return None if found is None or found.value is None else found


def is_started_by_trl(run: LintContext, document: Document) -> bool:
    """Whether flags are those of `trl sft` and similar commands, not of a custom script."""
    launchers = (each for each in run.of("launch") if each.name == document.name)
    return any(each.value("launcher") == "trl" for each in launchers)


def whole(value: Any) -> int | None:
    """An integer of 1 or more."""
    return value if is_whole(value) and value >= 1 else None


def real(value: Any) -> float | None:
    """A number, and not a boolean."""
    return float(value) if is_number(value) else None


FLASH: Final = ("attn_implementation~flash_attention", "flash_attention")
"""Either spelling of a FlashAttention: the key of axolotl 0.19, and the older switch."""
KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
"""Kernels of LoRA: axolotl 0.8.1 to 0.19.0 utils/schemas/config.py."""


def configs(run: LintContext) -> Iterator[Document]:
    """The documents that are Axolotl's own."""
    return (each for each in run.of("axolotl") if not each.is_view)


def schemas_ever(document: Document) -> tuple[str, ...]:
    """The JSON Schemas of a document's file in all known releases; empty for a view."""
    return _schemas(document, () if document.target is None else document.target.releases)


def schemas_here(run: LintContext, document: Document) -> tuple[str, ...]:
    """That of the named release, or those of all known ones."""
    release = run.release("axolotl")
    return (
        _schemas(document, (str(release.version),)) if release.is_named else schemas_ever(document)
    )


def schemas_around(run: LintContext, document: Document) -> tuple[str, ...]:
    """Like `schemas_here`; for a release whose schema was not read those before and after it."""
    release = run.release("axolotl")
    if not release.is_named:
        return schemas_ever(document)
    return _schemas(document, parsers_around("axolotl", release.version))


def _schemas(document: Document, releases: Iterable[str]) -> tuple[str, ...]:
    target, file = document.target, document.file
    if target is None or file is None or file.schema is None:
        return ()
    names = (file.schema(target.dialect(target.release(each))) for each in releases)
    return tuple(dict.fromkeys(name for name in names if name is not None))
