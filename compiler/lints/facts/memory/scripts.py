"""Scripts that fine-tune models, and the parts that each of them trains."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.facts.lora import is_minicpm, is_true
from tunec.compiler.lints.facts.training_loop import is_whole

if TYPE_CHECKING:
    from tunec.schemas.terms import OptimizerName, QuantFormat


_FLAGS: Final = frozenset(
    {
        *("mm_tunable_parts", "unfreeze_mm_vision_tower", "freeze_backbone", "tune_mm_mlp_adapter"),
        *("freeze_mm_mlp_adapter", "lora_enable", "lora_r", "lora_rank", "freeze_llm"),
        *("freeze_merger", "freeze_vision_tower", "vision_lora", "tune_mm_llm", "tune_mm_mlp"),
        *("tune_mm_vision", "use_llm_lora", "use_backbone_lora", "freeze_mlp", "tune_vision"),
        *("tune_llm", "use_lora", "lora_target_modules", "num_lora_modules"),
        *("lora_namespan_exclude", "grad_checkpoint"),
    }
)


class ScriptTask(NamedTuple):
    """The training task of a script."""

    whole: frozenset[str]
    """Parts whose weights are trained; `embedding`: only the language model's."""
    rank: int = 0
    """The rank of LoRA; 0: there is none."""
    adapted: frozenset[str] = frozenset()
    """Parts whose linear layers have LoRA, without the output projection."""
    names: str | None = None
    """A regular expression for the names of these layers; None: all."""
    recomputes: bool = False
    """Whether the script's own flag turns recomputation on."""
    packed: "QuantFormat | None" = None
    """The format in which the script stores frozen weights; None: other files decide."""
    length: int | None = None
    """Tokens of the longest sample, from the script's own flags."""
    micro: int | None = None
    """The micro batch, if the script's default differs from the trainer's."""
    optimizer: "OptimizerName | None" = None
    """The optimizer, if the script's default differs from the trainer's."""


NOTHING_SAID: Final = ScriptTask(frozenset())


_LLM: Final = frozenset({"text"})
_QUOTED: Final = re.compile(r"""['"]([^'"]+)['"]""")


def script_of(run: LintContext) -> Document | None:
    """The flags of one of these scripts, if the run has them."""
    return next((each for each in run.documents if _asker(each) is not None), None)


def asked(document: Document) -> ScriptTask | None:
    """What the flags of such a script train.

    None if the language model is neither trained nor adapted, or a flag is only known at run time.
    """
    asker = _asker(document)
    found = None if asker is None or document.unknown & _FLAGS else asker(document)
    return None if found is None or not (found.whole | found.adapted) & _LLM else found


def _asker(document: Document) -> "Callable[[Document], ScriptTask | None] | None":
    if document.is_view or document.format != "shell" or document.kind not in TRAINERS:
        return None
    return next((asker for is_its, asker in _SCRIPTS if is_its(document)), None)


def _is_on(document: Document, key: str, *, unsaid: bool = False) -> bool:
    at = document.get(key)
    return unsaid if at is None else is_true(at.value)


def _parts(**trained: bool) -> frozenset[str]:
    return frozenset(part for part, is_trained in trained.items() if is_trained)


def _rank(document: Document, key: str, unsaid: int) -> int:
    said = document.value(key, unsaid)
    return said if is_whole(said) and said > 0 else 0


def _of_llava(document: Document) -> ScriptTask | None:
    """The tower is frozen unless LLaVA-NeXT's flags train it."""
    named = document.get("mm_tunable_parts")
    opened = named.value if named is not None else None
    tower = _is_on(document, "unfreeze_mm_vision_tower")
    llm = not _is_on(document, "freeze_backbone") and not _is_on(document, "tune_mm_mlp_adapter")
    projector = not _is_on(document, "freeze_mm_mlp_adapter")
    if isinstance(opened, str):
        words = opened.split(",")
        llm, tower = "mm_language_model" in words, "mm_vision_tower" in words
        projector = "mm_mlp_adapter" in words
    if _is_on(document, "lora_enable"):
        whole = _parts(projector=projector, vision=tower)
        return ScriptTask(whole, _rank(document, "lora_r", 64), _LLM if llm else frozenset())
    return ScriptTask(_parts(text=llm, projector=projector, vision=tower))


def _of_qwen(document: Document) -> ScriptTask | None:
    """With LoRA, the language model's attention is adapted, and nothing else is trained."""
    if _is_on(document, "lora_enable"):
        names = r".*\.(q_proj|k_proj|v_proj|o_proj)"
        return ScriptTask(frozenset(), _rank(document, "lora_r", 64), _LLM, names)
    return ScriptTask(
        _parts(
            text=_is_on(document, "tune_mm_llm"),
            projector=_is_on(document, "tune_mm_mlp"),
            vision=_is_on(document, "tune_mm_vision"),
        )
    )


def _of_series(document: Document) -> ScriptTask | None:
    """With LoRA, all parts that are not frozen are trained too."""
    whole = _parts(
        text=not _is_on(document, "freeze_llm"),
        projector=not _is_on(document, "freeze_merger"),
        vision=not _is_on(document, "freeze_vision_tower"),
    )
    if not _is_on(document, "lora_enable"):
        return ScriptTask(whole)
    last = document.value("num_lora_modules", -1)
    without = _QUOTED.findall(str(document.value("lora_namespan_exclude", "")))
    names = rf"(?!.*({'|'.join(map(re.escape, without))})).*" if without else ".*"
    adapted = _parts(text=True, vision=_is_on(document, "vision_lora"))
    rank = _rank(document, "lora_rank", 64)
    return ScriptTask(whole - _LLM, rank, adapted, names if last == -1 else "")


def _of_internvl(document: Document) -> ScriptTask | None:
    ranks = {
        "text": _rank(document, "use_llm_lora", 0),
        "vision": _rank(document, "use_backbone_lora", 0),
    }
    adapted = frozenset(part for part, rank in ranks.items() if rank)
    frozen = {"text": "freeze_llm", "vision": "freeze_backbone", "projector": "freeze_mlp"}
    whole = frozenset(part for part, key in frozen.items() if not _is_on(document, key)) - adapted
    if adapted and "text" in whole:
        return None
    rank = min((each for each in ranks.values() if each), default=0)
    recomputes = _is_on(document, "grad_checkpoint", unsaid=True)
    return ScriptTask(whole, rank, adapted, recomputes=recomputes)


_OF_MINICPM: Final = r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj)"


def _of_minicpm(document: Document) -> ScriptTask | None:
    """With LoRA, the resampler and the embedding are trained as well."""
    vision, llm = (_is_on(document, key, unsaid=True) for key in ("tune_vision", "tune_llm"))
    if not _is_on(document, "use_lora"):
        return ScriptTask(_parts(text=llm, projector=True, vision=vision))
    names = document.value("lora_target_modules", _OF_MINICPM)
    rank = _rank(document, "lora_r", 64)
    whole = _parts(projector=True, vision=vision, embedding=True)
    return ScriptTask(whole, rank, _LLM, str(names))


def _has(*keys: str) -> Callable[[Document], bool]:
    return lambda document: all(document.get(key) is not None for key in keys)


def _is_llava(document: Document) -> bool:
    sees = document.get("vision_tower") or document.get("mm_projector_type")
    return sees is not None and document.get("freeze_vision_tower") is None


def _is_series(document: Document) -> bool:
    return any(document.get(key) for key in ("freeze_merger", "vision_lora"))


_SCRIPTS: Final[
    tuple[tuple[Callable[[Document], bool], Callable[[Document], ScriptTask | None]], ...]
] = (
    (_has("conv_style", "force_image_size"), _of_internvl),
    (is_minicpm, _of_minicpm),
    (_has("dataset_use"), _of_qwen),
    (_is_series, _of_series),
    (_is_llava, _of_llava),
)
"""OpenGVLab/InternVL 2410d1d internvl_chat/internvl/train/internvl_chat_finetune.py `main`;
OpenBMB/MiniCPM-V 0dbb566 finetune/finetune.py `train`; QwenLM/Qwen3-VL 9658872 qwen-vl-finetune/
qwenvl/train/train_qwen.py `set_model`, `train`; 2U1/Qwen-VL-Series-Finetune 93fef86 src/train/
train_sft.py `train`; haotian-liu/LLaVA c121f04 and LLaVA-VL/LLaVA-NeXT df17966 llava/train/
train.py `train`, whose tower llava/model/multimodal_encoder/clip_encoder.py loads frozen."""


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
"""Flags whose values must be known, if they are given."""
_CHATGLM: Final = ("prompt_column", "response_column")
"""What every command of ptuning/main.py names (`tunec.compiler.lints.checks.chatglm`)."""
_FORMS: "Final[Mapping[int, QuantFormat]]" = {4: _IN_FOUR_BITS, 8: "int8", 16: "none"}


class TextScript(NamedTuple):
    """The flags of such a script, and the function that reads them."""

    flags: Document
    asker: Callable[[Document], ScriptTask | None]

    def asked(self) -> ScriptTask | None:
        """What is trained; None if that is unknown, or only known at run time."""
        return None if self.flags.unknown & _NEEDED else self.asker(self.flags)


def text_script_of(run: LintContext) -> TextScript | None:
    """The script of this kind that a run starts, if any."""
    flags = next((each for each in run.of("hf") if _is_flags(each)), None)
    if flags is None:
        return None
    if all(flags.get(key) for key in _CHATGLM):
        return TextScript(flags, _of_chatglm)
    program = _program(run)
    found = (asker for name, asker in _TEXT_SCRIPTS if name.search(program))
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


def _of_qlora(document: Document) -> ScriptTask | None:
    """By default 4 bits, LoRA of rank 64 in every linear layer, with recomputation."""
    bits = document.value("bits", 4)
    if not is_whole(bits) or bits not in _FORMS or is_true(document.value("full_finetune")):
        return None
    lengths = _number(document, "source_max_len", 1024), _number(document, "target_max_len", 256)
    return ScriptTask(
        frozenset(),
        _number(document, "lora_r", 64),
        _ALL,
        recomputes=is_true(document.value("gradient_checkpointing", True)),
        packed=_FORMS[bits],
        length=sum(lengths),
        micro=_number(document, "per_device_train_batch_size", 1),
        optimizer=None if document.get("optim") else "paged_adamw_32bit",
    )


def _of_fastchat(document: Document) -> ScriptTask:
    """By default LoRA of rank 8 in queries and values."""
    named = document.value("lora_target_modules")
    names = named if isinstance(named, list) else [named] if named else ["q_proj", "v_proj"]
    packed: QuantFormat = _IN_FOUR_BITS if is_true(document.value("q_lora")) else "none"
    return ScriptTask(
        frozenset(),
        _number(document, "lora_r", 8),
        _ALL,
        _NAMES.format("|".join(re.escape(str(name)) for name in names)),
        packed=packed,
    )


def _of_chatglm(document: Document) -> ScriptTask | None:
    """The whole model; with a prefix, only the prefix."""
    if document.get("pre_seq_len"):
        return None
    sides = (
        _number(document, "max_source_length", 1024),
        _number(document, "max_target_length", 128),
    )
    return ScriptTask(_ALL, length=sum(sides))


def _number(document: Document, key: str, unsaid: int) -> int:
    said = document.value(key, unsaid)
    return said if is_whole(said) and said > 0 else unsaid


_TEXT_SCRIPTS: Final[
    "tuple[tuple[re.Pattern[str], Callable[[Document], ScriptTask | None]], ...]"
] = ((_QLORA, _of_qlora), (_FASTCHAT, _of_fastchat))
"""artidoro/qlora 00e5ad2 qlora.py `TrainingArguments`, `DataArguments`, `get_accelerate_model`,
`find_all_linear_names`; lm-sys/FastChat 02d4581 fastchat/train/train_lora.py `LoraArguments`,
`train`; zai-org/ChatGLM2-6B cb8e8b4 ptuning/arguments.py and main.py `main`."""
