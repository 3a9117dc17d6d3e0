"""Which preference method a run trains by, and Axolotl's own documents."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.rule import keys

PAIRED: Final = ("dpo", "kto")
"""Methods that compare the policy with a reference model."""
GROUPED: Final = ("grpo", "gdpo", "rloo")
"""Methods that compare the answers to one prompt."""
PREFERENCES: Final = (
    *("dpo:*", "grpo:*", "kto:*", "rloo:*", "reward:*", "llamafactory:stage", "axolotl:rl"),
)
"""What a rule reads that asks for preference methods: without one of these there is none."""


def grouped(*names: str) -> tuple[str, ...]:
    """What a rule reads that asks for keys of GRPO's or RLOO's, wherever `trl` finds them."""
    return (*keys("grpo|rloo", *names), *keys("axolotl", *(f"trl.{each}" for each in names)))


def method(document: Document) -> str:
    """`dpo`, `grpo`, `rloo`, `kto`, `ppo`, `rm`, `orpo`, `simpo`, or empty for other training."""
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
        return "dpo" if word == "ipo" else word
    return ""


def preferences(run: LintContext) -> Iterator[tuple[Document, str]]:
    """Each document that asks for a preference method, with the method."""
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
    """Whether flags are those of `trl sft` and its like, and not of a script of one's own."""
    launchers = (each for each in run.of("launch") if each.name == document.name)
    return any(each.value("launcher") == "trl" for each in launchers)


def whole(value: Any) -> int | None:
    """A whole number of 1 or more."""
    return value if is_whole(value) and value >= 1 else None


def real(value: Any) -> float | None:
    """A number, and no boolean."""
    return float(value) if is_number(value) else None


FLASH: Final = ("attn_implementation~flash_attention", "flash_attention")
"""Either spelling of a FlashAttention: the key of axolotl 0.19, and the older switch."""
KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
"""Kernels of LoRA: axolotl 0.8.1 to 0.19.0 utils/schemas/config.py."""


def configs(run: LintContext) -> Iterator[Document]:
    """The documents that are Axolotl's own."""
    return (each for each in run.of("axolotl") if not each.is_view)


def schemas_ever(document: Document) -> tuple[str, ...]:
    """The JSON Schemas of a document's file in the releases that are known; none for a view."""
    return _schemas(document, () if document.target is None else document.target.releases)


def schemas_here(run: LintContext, document: Document) -> tuple[str, ...]:
    """That of the release which is named, or those of all that are known."""
    release = run.release("axolotl")
    return (
        _schemas(document, (str(release.version),)) if release.is_named else schemas_ever(document)
    )


def _schemas(document: Document, releases: Iterable[str]) -> tuple[str, ...]:
    target, file = document.target, document.file
    if target is None or file is None or file.schema is None:
        return ()
    names = (file.schema(target.dialect(target.release(each))) for each in releases)
    return tuple(dict.fromkeys(name for name in names if name is not None))
