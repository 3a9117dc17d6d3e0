"""Scripts that fine-tune language models, and what each of them trains."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.counts import is_whole
from tunec.compiler.lints.facts.lora import is_true
from tunec.compiler.lints.facts.memory.scripts import Asked

if TYPE_CHECKING:
    from tunec.schemas.terms import QuantFormat

_ALL: Final = frozenset({"text"})
_NAMES: Final = r".*\.({})"
_IN_FOUR_BITS: "Final[QuantFormat]" = "nf4"
_QLORA: Final = re.compile(r"(\A|/)qlora\.py\Z")
_FASTCHAT: Final = re.compile(r"(\A|/)fastchat/train/train_lora\.py\Z")
_NEEDED: Final = frozenset(
    {
        *("bits", "full_finetune", "lora_r", "source_max_len", "target_max_len", "optim"),
        *("per_device_train_batch_size", "gradient_checkpointing", "q_lora", "pre_seq_len"),
        *("lora_target_modules", "max_source_length", "max_target_length"),
    }
)
"""Flags of which each has to be known, where it is given."""
_CHATGLM: Final = ("prompt_column", "response_column")
"""What every command of ptuning/main.py names (`tunec.compiler.lints.checks.chatglm`)."""
_FORMS: "Final[Mapping[int, QuantFormat]]" = {4: _IN_FOUR_BITS, 8: "int8", 16: "none"}


class TextScript(NamedTuple):
    """The flags of such a script, and who tells what they train."""

    flags: Document
    asker: Callable[[Document], Asked | None]

    def asked(self) -> Asked | None:
        """What is trained; None where that cannot be told, or only running tells it."""
        return None if self.flags.unknown & _NEEDED else self.asker(self.flags)


def text_script_of(run: LintContext) -> TextScript | None:
    """The script of this kind that a run starts, if it does."""
    flags = next((each for each in run.of("hf") if _is_flags(each)), None)
    if flags is None:
        return None
    if all(flags.get(key) for key in _CHATGLM):
        return TextScript(flags, _of_chatglm)
    program = _program(run)
    found = (asker for name, asker in _SCRIPTS if name.search(program))
    return next((TextScript(flags, asker) for asker in found), None)


def spreads_by_itself(run: LintContext) -> bool:
    """Whether one process puts the layers of a model on all devices that it sees.

    artidoro/qlora 00e5ad2 qlora.py `get_accelerate_model` and tloen/alpaca-lora 8bb8579 finetune.py
    `train`: device_map is "auto" unless a launcher sets LOCAL_RANK or WORLD_SIZE.
    """
    known = run.of("alpaca-lora") or _QLORA.search(_program(run))
    starts = (each.value("launcher") for each in run.of("launch"))
    return bool(known) and all(launcher == "python" for launcher in starts)


def _is_flags(document: Document) -> bool:
    return not document.is_view and document.format == "shell"


def _program(run: LintContext) -> str:
    scripts = (each.value("script") for each in run.of("launch"))
    return next((str(words[0]) for words in scripts if isinstance(words, list) and words), "")


def _of_qlora(document: Document) -> Asked | None:
    """In 4 bits, with LoRA of rank 64 in every linear layer, recomputed, unless it is told else."""
    bits = document.value("bits", 4)
    if not is_whole(bits) or bits not in _FORMS or is_true(document.value("full_finetune")):
        return None
    lengths = _number(document, "source_max_len", 1024), _number(document, "target_max_len", 256)
    return Asked(
        frozenset(),
        _number(document, "lora_r", 64),
        _ALL,
        recomputes=is_true(document.value("gradient_checkpointing", True)),
        packed=_FORMS[bits],
        length=sum(lengths),
        micro=_number(document, "per_device_train_batch_size", 1),
        optimizer=None if document.get("optim") else "paged_adamw_32bit",
    )


def _of_fastchat(document: Document) -> Asked:
    """LoRA of rank 8 in queries and values, unless it is told of others."""
    named = document.value("lora_target_modules")
    names = named if isinstance(named, list) else [named] if named else ["q_proj", "v_proj"]
    packed: QuantFormat = _IN_FOUR_BITS if is_true(document.value("q_lora")) else "none"
    return Asked(
        frozenset(),
        _number(document, "lora_r", 8),
        _ALL,
        _NAMES.format("|".join(re.escape(str(name)) for name in names)),
        packed=packed,
    )


def _of_chatglm(document: Document) -> Asked | None:
    """The whole model; with a prefix, that alone."""
    if document.get("pre_seq_len"):
        return None
    sides = (
        _number(document, "max_source_length", 1024),
        _number(document, "max_target_length", 128),
    )
    return Asked(_ALL, length=sum(sides))


def _number(document: Document, key: str, unsaid: int) -> int:
    said = document.value(key, unsaid)
    return said if is_whole(said) and said > 0 else unsaid


_SCRIPTS: "Final[tuple[tuple[re.Pattern[str], Callable[[Document], Asked | None]], ...]]" = (
    (_QLORA, _of_qlora),
    (_FASTCHAT, _of_fastchat),
)
"""artidoro/qlora 00e5ad2 qlora.py `TrainingArguments`, `DataArguments`, `get_accelerate_model`,
`find_all_linear_names`; lm-sys/FastChat 02d4581 fastchat/train/train_lora.py `LoraArguments`,
`train`; zai-org/ChatGLM2-6B cb8e8b4 ptuning/arguments.py and main.py `main`."""
