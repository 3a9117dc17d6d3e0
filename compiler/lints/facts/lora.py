"""LoRA in each dialect, under PEFT's own names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.rule import keys

ALL_LINEAR: Final = "all-linear"
Targets = str | tuple[str, ...]


def _own(*names: str) -> dict[str, str]:
    """Fields that have the same name in a dialect as in PEFT."""
    return dict(zip(names, names, strict=True))


_SCALE: Final = _own("lora_alpha", "lora_dropout")
_TRL: Final = {
    **_SCALE,
    **_own("use_rslora", "use_dora"),
    "r": "lora_r",
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "task_type": "lora_task_type",
    "target_parameters": "lora_target_parameters",
}
"""trl 0.8.6 to 1.16.0 trainer/utils.py `get_peft_config`, with parameters since 0.26.0."""
_AXOLOTL: Final = {
    **_SCALE,
    "r": "lora_r",
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "exclude_modules": "lora_exclude_modules",
    "layers_to_transform": "peft_layers_to_transform",
    "layers_pattern": "peft_layers_pattern",
    "layer_replication": "peft_layer_replication",
    "init_lora_weights": "peft_init_lora_weights",
    "loftq_config": "peft.loftq_config",
    "use_dora": "peft_use_dora",
    "use_rslora": "peft_use_rslora",
    "rank_pattern": "lora_rank_pattern",
    "alpha_pattern": "lora_alpha_pattern",
    "trainable_token_indices": "peft_trainable_token_indices",
    "ensure_weight_tying": "peft_ensure_weight_tying",
    "target_parameters": "lora_target_parameters",
}
"""axolotl 0.8.1 to 0.19.0 loaders/adapter.py `load_lora`, `_build_peft_lora_config`."""
_LLAMAFACTORY: Final = {
    **_SCALE,
    **_own("use_rslora", "use_dora"),
    "r": "lora_rank",
    "target_modules": "lora_target",
    "modules_to_save": "additional_target",
}
"""llamafactory 0.9.1 to 0.9.5 model/adapter.py `_setup_lora_tuning`."""
_MINICPM: Final = {
    **_SCALE,
    "r": "lora_r",
    "target_modules": "lora_target_modules",
    "layers_to_transform": "lora_layers_to_transform",
    "layers_pattern": "lora_layers_pattern",
    "bias": "lora_bias",
}
"""OpenBMB/MiniCPM-V 0dbb566 finetune/finetune.py `train`: LoraConfig."""
_ALPACA: Final = {**_SCALE, "r": "lora_r", "target_modules": "lora_target_modules"}
"""tloen/alpaca-lora 8bb8579 finetune.py `train`: LoraConfig."""
_OPENRLHF: Final = {
    "r": "ds.lora.rank",
    "lora_alpha": "ds.lora.alpha",
    "lora_dropout": "ds.lora.dropout",
    "target_modules": "ds.lora.target_modules",
}
"""openrlhf 0.10.4 to 0.11.2 models/actor.py `Actor.__init__`: LoraConfig."""
_SAID_BY: Final = (
    ("trainer", _TRL),
    ("trainer|model|minicpm-v", _MINICPM),
    ("axolotl", _AXOLOTL),
    ("llamafactory", _LLAMAFACTORY),
    ("alpaca-lora", _ALPACA),
    ("openrlhf", _OPENRLHF),
)
"""Kinds of documents with the fields that their dialect has, and its keys for them; PEFT's own
files and GLM-4's `peft_config` have all."""
_BY_NAME: Final = _own(
    *("target_modules", "exclude_modules", "modules_to_save", "layers_to_transform"),
    *("layers_pattern", "task_type", "inference_mode"),
)
"""The fields that PEFT's other methods that change layers share with LoRA: peft 0.10.0 to 0.21.2
tuners/tuners_utils.py `BaseTuner.inject_adapter`, `check_target_module_exists`."""
_NO_LAYERS: Final = ("layers_to_transform", "layers_pattern")
_METHODS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "ADALORA": ("AdaLoRA", _BY_NAME),
    "IA3": ("IA3", {name: key for name, key in _BY_NAME.items() if name not in _NO_LAYERS}),
    **{
        kind: (word, _BY_NAME)
        for kind, word in (
            *(("LOHA", "LoHa"), ("LOKR", "LoKr"), ("OFT", "OFT"), ("BOFT", "BOFT")),
            *(("VERA", "VeRA"), ("HRA", "HRA"), ("FOURIERFT", "FourierFT")),
        )
    },
}
"""These methods by their `peft_type`, with the names that each has."""


class Lora(Struct, frozen=True):
    """One document that configures LoRA."""

    document: Document
    keys: Mapping[str, str] | None = None
    """This dialect's key for each field of LoraConfig that it has; None: PEFT's own names."""
    prefix: str = ""
    method: str = "LoRA"
    """The usual name of the method."""

    def key(self, name: str) -> str:
        """The key of a field of LoraConfig in this dialect."""
        return self.prefix + (self.keys or {}).get(name, name)

    def knows(self, name: str) -> bool:
        """Whether the dialect has that field."""
        return self.keys is None or name in self.keys

    def place(self, name: str) -> Place | None:
        """Where a field of LoraConfig is written; None also if it is null."""
        found = self.document.get(self.key(name)) if self.knows(name) else None
        return None if found is None or found.value is None else found

    def value(self, name: str, otherwise: Any = None) -> Any:
        """The written value of a field of LoraConfig."""
        found = self.place(name)
        return otherwise if found is None else found.value

    @property
    def targets(self) -> Targets | None:
        """`target_modules` as PEFT gets it: a regex, `all-linear`, or names; None: unknown."""
        value = self.value("target_modules")
        if self.document.kind == "llamafactory":
            return _commas(value)
        if self.document.kind == "alpaca-lora":
            return _literal(value)
        if self.document.kind == "axolotl" and self.document.value("lora_target_linear"):
            return ALL_LINEAR
        if isinstance(value, str):
            return value or None
        names = _names(value)
        is_one = len(names) == 1 and self.document.kind in (*TRL, "openrlhf")
        return names[0] if is_one and names[0] == ALL_LINEAR else names or None

    @property
    def saved(self) -> tuple[str, ...]:
        """`modules_to_save` as names."""
        value = self.value("modules_to_save")
        if self.document.kind == "llamafactory":
            found = _commas(value)
            return found if isinstance(found, tuple) else ()
        return _names(value)

    @property
    def excluded(self) -> tuple[str, ...]:
        """`exclude_modules`, if it is a list."""
        return _names(self.value("exclude_modules"))

    def start(self) -> Place | None:
        """The place that represents the whole configuration."""
        for name in ("target_modules", "r", "lora_alpha"):
            if (found := self.place(name)) is not None:
                return found
        keys = ("peft_type", "use_peft", "adapter", "finetuning_type", "use_lora")
        return next((at for key in keys if (at := self.document.get(key)) is not None), None)


def lora_keys(*names: str) -> tuple[str, ...]:
    """Every key by which a file says one of these fields of LoraConfig, for a rule's `reads`."""
    in_glm = (f"peft_config.{name}" for name in names)
    return (
        *keys("peft", *names),
        *keys("glm4", *in_glm),
        *(key for kinds, table in _SAID_BY for key in keys(kinds, *_of(table, names))),
    )


def _of(table: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    return (table[name] for name in names if name in table)


def has_adapter(run: LintContext) -> bool:
    """Whether the base is frozen under an adapter, even if its file does not name the method."""
    if run.value("adapter.kind", "none") != "none" or run.of("peft"):
        return True
    if any(place.value is True for key in _SWITCHES for place in run.each("trainer", key)):
        return True
    return any(place.value in _ADAPTED for key in _METHOD_OF for place in run.each("trainer", key))


_IN_PART: Final = re.compile(r"peft|lora|adapter|freeze|requires_grad", re.IGNORECASE)
_TRAINS: Final = re.compile(r"\b\w*Trainer\(")


def trains_whole(run: LintContext) -> bool:
    """Whether Python files load a model and give it to a trainer, with no word about adapters."""
    trainers = run.of("trainer")
    return bool(trainers and run.of("model")) and all(
        each.format == "python" and _TRAINS.search(each.text) and not _IN_PART.search(each.text)
        for each in trainers
    )


_SWITCHES: Final = ("use_peft", "lora_enable")
"""Flags by which some scripts add adapters."""


_METHOD_OF: Final = ("sft_type", "train_type", "tuner_type", "finetuning_type")
"""Flags of ms-swift of several releases, and of LLaMA-Factory, for what is trained."""
_ADAPTED: Final = ("lora", "qlora", "longlora", "adalora")


def loras(run: LintContext) -> Iterator[Lora]:
    """Every document of the run that configures LoRA, in their order."""
    for each in run.documents:
        if not each.is_view and (found := _lora(each)) is not None:
            yield found


def adapters(run: LintContext) -> Iterator[Lora]:
    """Every document that adapts layers by name: by LoRA, or by a related method."""
    for each in run.documents:
        if not each.is_view and (found := _lora(each) or _relative(each)) is not None:
            yield found


def _relative(document: Document) -> Lora | None:
    kind = document.value("peft_type") if document.kind == "peft" else None
    word, fields = _METHODS.get(str(kind), ("", None))
    return None if fields is None else Lora(document, fields, method=word)


def _lora(document: Document) -> Lora | None:
    kind = document.kind
    if kind == "peft" and str(document.value("peft_type", "LORA")).upper() == "LORA":
        return Lora(document)
    if is_minicpm(document):
        is_on = is_true(document.value("use_lora"))
        return Lora(document, _MINICPM) if is_on else None
    if kind in TRL and is_true(document.value("use_peft")):
        return Lora(document, _TRL)
    if kind == "axolotl" and document.value("adapter") in ("lora", "qlora"):
        return Lora(document, _AXOLOTL)
    if kind == "llamafactory" and document.value("finetuning_type", "lora") == "lora":
        return Lora(document, _LLAMAFACTORY)
    if kind == "alpaca-lora":
        return Lora(document, _ALPACA)
    if kind == "openrlhf" and document.value("ds.lora.rank"):
        return Lora(document, _OPENRLHF)
    if kind == "glm4" and document.value("peft_config.peft_type") == "LORA":
        return Lora(document, prefix="peft_config.")
    return None


def is_true(value: Any) -> bool:
    """Whether it is true, or a word that turns a flag on."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _commas(value: Any) -> Targets | None:
    if isinstance(value, str):
        names = tuple(part.strip() for part in value.split(",") if part.strip())
        return ALL_LINEAR if names == ("all",) else names or None
    names = _names(value)
    return ALL_LINEAR if names == ("all",) else names or None


def _literal(value: Any) -> Targets | None:
    """A list as python-fire reads one word: `[q_proj,v_proj]`; a bare word is a regex to PEFT."""
    if not isinstance(value, str):
        return _names(value) or None
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return text or None
    names = (part.strip().strip("\"'") for part in text[1:-1].split(","))
    return tuple(each for each in names if each) or None


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        return ()
    return tuple(value)


def last(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def is_plain(name: str) -> bool:
    """Whether a name has no special characters of a regular expression."""
    return not set(name) & set("*+?^$[](){}|\\")


def is_patched(run: LintContext, lora: Lora) -> bool:
    """Whether the names are not those of the known model.

    LLaMA-Factory matches them itself, anywhere in a name, if the model has a vision tower
    (llamafactory 0.9.1 to 0.9.5 model/model_utils/visual.py `patch_target_modules`), and a script
    may have a list for each family.
    """
    sees = run.model is not None and run.model.architecture.kind == "vision-language"
    return (lora.document.kind == "llamafactory" and sees) or _is_of_a_family(lora)


_ASKS: Final = re.compile(
    r"\b(?:el)?if\b(?=.*\b(?:\w*model\w*|name_or_path)\b)(?=.*(?:\bin\b|==|with\())|\belse:"
)
"""A line with a condition on the model, or an `else`."""


def _is_of_a_family(lora: Lora) -> bool:
    """Whether a script makes the adapter under a condition on the model's name."""
    at = lora.place("target_modules")
    if at is None or lora.document.format != "python":
        return False
    lines = lora.document.text.splitlines()[: at.span.line]
    depth = len(lines[-1]) - len(lines[-1].lstrip()) if lines else 0
    for line in reversed(lines[:-1]):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent >= depth:
            continue
        depth = indent
        if _ASKS.search(line):
            return "else:" not in line or _asks_above(lines, line, indent)
    return False


def _asks_above(lines: Sequence[str], otherwise: str, indent: int) -> bool:
    """Whether the condition of an `else` is one on the model."""
    above = lines[: len(lines) - 1 - lines[::-1].index(otherwise)]
    asked = (e for e in reversed(above) if e.strip() and len(e) - len(e.lstrip()) <= indent)
    first = next(asked, "")
    return "else:" not in first and _ASKS.search(first) is not None


MINICPM_FLAGS: Final = ("tune_vision", "tune_llm")
"""Flags that identify MiniCPM-V's script."""


def is_minicpm(document: Document) -> bool:
    """Whether a document holds the flags of MiniCPM-V's finetune.py, whatever its kind."""
    return document.kind == "minicpm-v" or any(map(document.get, MINICPM_FLAGS))
