"""A Python file to documents: which calls configure which program.

A call of `TrainingArguments` holds the keys of a trainer's file, `LoraConfig` those of an
adapter's, `from_pretrained` what a model is loaded with, `deepspeed.initialize` an engine's file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.notebook import Notebook, is_notebook, read_notebook
from tunec.compiler.frontend.python_calls import Call, Calls, read_calls, syntax_fault
from tunec.compiler.frontend.python_origins import imported
from tunec.compiler.frontend.python_settings import BY_ITSELF, ScriptArguments
from tunec.compiler.frontend.text import Origin
from tunec.compiler.lints.document import READ_ONCE, TRAINERS, counts_when_set_later
from tunec.compiler.lints.kinds import LOADING, fields_of
from tunec.compiler.lints.python_runs import (
    Found,
    engine_settings,
    in_runs,
    is_plugin,
    prepares,
    short_of,
)
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

_MOST_ARGUMENTS: Final = 1_000
_TRAINERS: Final[Mapping[str, str]] = {
    "transformers.TrainingArguments": "hf",
    "transformers.Seq2SeqTrainingArguments": "hf",
    **{
        f"trl.{name}Config": name.lower()
        for name in ("SFT", "DPO", "GRPO", "KTO", "Reward", "RLOO", "GKD", "PPO")
    },
}
_HEIRS: Final = frozenset(
    {
        *("trl.CPOConfig", "trl.ORPOConfig", "trl.BCOConfig", "trl.OnlineDPOConfig"),
        *("trl.XPOConfig", "trl.NashMDConfig", "trl.PRMConfig", "trl.IterativeSFTConfig"),
        "unsloth.UnslothTrainingArguments",
        "sentence_transformers.SentenceTransformerTrainingArguments",
    }
)
"""Classes that are TrainingArguments with fields of their own: trl 0.9.6 to 1.16.0 trainer/ and
experimental/; unsloth 2026.9.8 trainer.py; sentence-transformers 5.1 training_args.py. What they
leave out is not TrainingArguments' default."""
_OLD_PPO: Final = frozenset({"model_name", "ppo_epochs", "init_kl_coef", "mini_batch_size"})
"""Fields of TRL's PPOConfig before 0.11, which was no TrainingArguments (trl 0.10.1
trainer/ppo_config.py)."""
_MODELS: Final = re.compile(
    r"(?:Auto(?:Liger\w+|ModelFor\w+|Model)|\w+For(?:CausalLM|ConditionalGeneration|Seq2SeqLM"
    r"|SequenceClassification|TokenClassification|QuestionAnswering|MaskedLM|CTC))"
)
_FAST: Final = frozenset(
    {"FastLanguageModel", "FastModel", "FastVisionModel", "FastLlamaModel", "FastMistralModel"}
)
_UNSLOTH: Final = "unsloth"
_BITS, _LORA = "transformers.BitsAndBytesConfig", "peft.LoraConfig"
_LOAD: Final = "from_pretrained"
_ADAPT: Final = "get_peft_model"
LOAD_DATASET: Final = "datasets.load_dataset"
RESPONSES: Final = "train_on_responses_only"
"""Unsloth's function that masks all but the answers."""
_PATH: Final = "model_name_or_path"
_NAMES: Final = ("pretrained_model_name_or_path", "model_name")
_QUANTIZATION: Final = "quantization_config"
_BY_QUANTIZATION: Final = frozenset(
    {"load_in_4bit", "load_in_8bit", *(key for key in LOADING if key.startswith("bnb_"))}
)
_FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((*TRAINERS, "ppo"), ("output_dir",)),
    "model": (_PATH,),
    _QUANTIZATION: ("load_in_8bit", "load_in_4bit"),
}
"""Names of positional arguments as far as every release has the same: transformers 4.40.2 to 5.23.0
training_args.py `TrainingArguments`, modeling_utils.py `from_pretrained`,
utils/quantization_config.py `BitsAndBytesConfig`."""
_REBUILT: Final = re.compile(r"(?m)^[ \t]*class \w+\(.*\bnn\.Module\b")
_WANTED: Final = re.compile(
    r"TrainingArguments\b|\b(?:SFT|DPO|GRPO|KTO|Reward|RLOO|GKD|PPO|CPO|ORPO|BCO|OnlineDPO|XPO"
    r"|NashMD|PRM|IterativeSFT)Config\b|\bLoraConfig\b|\bBitsAndBytesConfig\b"
    r"|\bFast\w*Model\b|\bfrom_pretrained\b|\b(?:FullyShardedDataParallel|DeepSpeed)Plugin\b"
    r"|\bdeepspeed\.initialize\b"
)
_OF_TESTS: Final = re.compile(r"(?:\A|/)(?:test_[^/]*|[^/]*_test|conftest)\.py\Z|(?:\A|/)tests?/")


def may_configure(text: str) -> bool:
    """Whether a text names a class that is read here."""
    return _WANTED.search(text) is not None


def is_of_tests(path: str) -> bool:
    """Whether a file is a test, whose calls may be made to fail."""
    return _OF_TESTS.search(path.replace("\\", "/")) is not None


def read_python(
    text: str, origin: Origin, given: ScriptArguments = BY_ITSELF
) -> tuple[tuple[Found, ...], Diagnostic | None]:
    """The documents of a Python file, each with its runs; raises nothing.

    `given`: the flags of what starts it.
    """
    if not may_configure(text):
        return (), None
    calls, fault = read_calls(text, origin, _is_wanted, given)
    if calls is None:
        return (), fault
    found = map(_hidden_path, _found(calls)) if _REBUILT.search(text) else _found(calls)
    return tuple(in_runs(list(found), calls, text)), None


def parse_cells(cells: Notebook) -> tuple[str, list[Diagnostic]]:
    """The script of a notebook's cells without those that are not Python, and their faults.

    A cell that configures nothing may hold anything: comments, the end of a command, an output.
    """
    lines, faults = cells.python.split("\n"), list[Diagnostic]()
    for first, end in cells.cells if may_configure(cells.python) else ():
        places = replace(cells.origin, lines=cells.origin.lines[first:end])
        fault = syntax_fault("\n".join(lines[first:end]), places)
        if fault is not None:
            is_meant = may_configure("\n".join(lines[first:end]))
            faults.append(fault if is_meant else replace(fault, severity="note"))
            lines[first:end] = [""] * (end - first)
    return "\n".join(lines), faults


@cached(64)
def calls_of(name: str, text: str) -> Calls | None:
    """The calls of trainers' classes, of Accelerate's, and of what loads a model or data."""
    cells = read_notebook(text, name)[0] if is_notebook(name) else None
    script, origin = (
        (text, Origin(name)) if cells is None else (parse_cells(cells)[0], cells.origin)
    )
    return read_calls(script, origin, _is_called)[0]


@cached(64)
def imports_of(name: str, text: str) -> tuple[tuple[str, Node], ...]:
    """Names that a file takes from modules, `trl.SFTTrainer`, whatever it finds there.

    Left out is what is imported under a condition, or tried.
    """
    cells = read_notebook(text, name)[0] if is_notebook(name) else None
    script, origin = (
        (text, Origin(name)) if cells is None else (parse_cells(cells)[0], cells.origin)
    )
    return tuple(imported(script, origin))


def _is_called(origin: str) -> bool:
    if (
        _loads(origin)
        or origin == LOAD_DATASET
        or (origin.startswith(_UNSLOTH) and origin.endswith(f".{RESPONSES}"))
    ):
        return True
    return _is_trainer(origin) or prepares(origin) or is_plugin(origin)


def _is_trainer(origin: str) -> bool:
    return origin.endswith("Trainer") and not origin.startswith("builtins.")


def _hidden_path(found: Found) -> Found:
    """A model without its name, if the file may add its own modules to it."""
    fields = {key: node for key, node in (found.root.fields or {}).items() if key != _PATH}
    hidden = found.unknown | {_PATH}
    return replace(found, root=replace(found.root, fields=fields), unknown=hidden)


def _is_wanted(origin: str) -> bool:
    short = short_of(origin)
    if short in _TRAINERS or short in _HEIRS or short in (_BITS, _LORA):
        return True
    if is_plugin(origin) or prepares(origin):
        return True
    if origin.endswith("PeftModel.from_pretrained") or _loads(origin):
        return True
    return (_is_fast(origin) and origin.endswith(f".{_ADAPT}")) or _is_trainer(origin)


def _loads(origin: str) -> bool:
    """Whether a call loads a model, by a class of transformers or of Unsloth."""
    holder, _, method = origin.rpartition(".")
    is_model = _MODELS.fullmatch(holder.rpartition(".")[2]) is not None
    is_its = is_model and origin.startswith("transformers.")
    return method == _LOAD and (is_its or _is_fast(origin))


def _is_fast(origin: str) -> bool:
    holder = origin.rpartition(".")[0].rpartition(".")[2]
    return origin.startswith(f"{_UNSLOTH}.") and holder in _FAST


# ── documents ────────────────────────────────────────────────────────────────────────────────────


def _found(calls: Calls) -> Iterator[Found]:
    bits = [each for each in calls.found if short_of(each.origin) == _BITS]
    for call in calls.found:
        if prepares(call.origin):
            yield from engine_settings(call, calls)
            continue
        short = short_of(call.origin)
        is_reset = not calls.module.reset.isdisjoint(call.site.targets)
        if is_reset or len(call.fields) > _MOST_ARGUMENTS:
            continue
        if short in _TRAINERS or short in _HEIRS:
            found = _trainer(call, _TRAINERS.get(short), calls)
        elif short == _LORA:
            found = _lora(call, calls)
        elif call.name == _ADAPT:
            mine = {key: call.fields[key] for key in fields_of("peft") & call.fields.keys()}
            opened = replace(call, fields=mine, is_open=True)
            found = _document("peft", opened, calls, fields_of("peft"))
        elif call.name == _LOAD and call.holder != "PeftModel":
            found = _model(call, bits, calls)
        elif short.startswith("trl.") and _is_trainer(call.origin):
            found = _named(call)
        else:
            continue
        if found is not None:
            yield found


def _trainer(call: Call, kind: str | None, calls: Calls) -> Found | None:
    if kind == "ppo" and not _OLD_PPO.isdisjoint(call.fields):
        return None
    if kind is not None:
        return _document(kind, call, calls, fields_of("hf") | fields_of(kind))
    known = fields_of("hf")
    mine = {key: node for key, node in call.fields.items() if key in known}
    return _document("hf", replace(call, fields=mine, is_open=True), calls, known)


def _inherited(call: Call, known: frozenset[str]) -> Call:
    """A call of a class of this file: its own settings, without its own fields."""
    own = {key: node for key, node in call.own.items() if key in known}
    mine = {k: v for k, v in call.fields.items() if k in known or k not in call.own}
    return replace(call, fields={**own, **mine}) if call.own else call


def _document(kind: str, call: Call, calls: Calls, known: frozenset[str]) -> Found:
    """A call's keyword arguments as a document; values that are set later are unknown."""
    call = _inherited(call, known)
    names = _FIRST.get(kind, ())
    words = zip(names, call.positional, strict=False)
    placed = {name: replace(each, key_span=each.span, is_inline_json=True) for name, each in words}
    fields = {**placed, **call.fields}
    is_open = call.is_open or len(call.positional) > len(names)
    later = calls.module.attributes & (known | fields.keys())
    told = {key: node for key in later if (node := calls.set_later(call, key)) is not None}
    fields |= {key: node for key, node in told.items() if counts_when_set_later(kind, key)}
    once = (READ_ONCE if kind == "hf" else frozenset()) - fields.keys()
    late = {key: node for key, node in told.items() if key in once}
    later = frozenset(
        key for key in later if not counts_when_set_later(kind, key) or key not in told
    )
    unknown = later | (known - fields.keys() if is_open else frozenset())
    kept = {key: node for key, node in fields.items() if key not in later}
    return Found(kind, Node(call.span, fields=kept), unknown, call, late=late)


def _lora(call: Call, calls: Calls) -> Found:
    """The arguments of `LoraConfig`, and the kind given by its name.

    peft 0.21.2 tuners/lora/config.py `LoraConfig.__post_init__`.
    """
    found = _document("peft", call, calls, fields_of("peft"))
    kind = {"peft_type": Node(call.span, value="LORA")}
    return replace(found, root=replace(found.root, fields={**kind, **(found.root.fields or {})}))


def _model(call: Call, bits: Sequence[Call], calls: Calls) -> Found | None:
    """The arguments of `from_pretrained`; another file or a config may have the others.

    unsloth 2026.10.9 models/loader_utils.py `get_model_name`: of a name it loads another repository
    of the same model, by the bits that are asked for.
    """
    opened = replace(call, is_open=True, fields={})
    own = {_PATH if key in _NAMES else key: node for key, node in call.fields.items()}
    held = _quantization(call, bits, calls)
    if held is not None:
        own[_QUANTIZATION] = held
    if call.positional:
        path = call.positional[0]
        own.setdefault(_PATH, replace(path, key_span=path.span, is_inline_json=True))
    if call.package == _UNSLOTH:
        own.pop(_PATH, None)
    kept = {key: node for key, node in own.items() if key in LOADING or key == _PATH}
    return _document("model", replace(opened, fields=kept, positional=()), calls, LOADING)


def _named(call: Call) -> Found | None:
    """The model that a trainer of TRL is given by its name."""
    at = call.fields.get("model") or next(iter(call.positional), None)
    if at is None or not isinstance(at.value, str):
        return None
    path = replace(at, key_span=at.key_span or at.span, is_inline_json=True)
    return Found("model", Node(call.span, fields={_PATH: path}), LOADING - {_PATH}, call)


def _quantization(call: Call, bits: Sequence[Call], calls: Calls) -> Node | None:
    """The BitsAndBytesConfig that is passed, written there or assigned once."""
    given = next((each for each in call.site.call.keywords if each.arg == _QUANTIZATION), None)
    if given is None:
        return None
    key = call.fields[_QUANTIZATION].key_span
    name = calls.given(call, _QUANTIZATION)
    mine = [each for each in bits if each.site.call is given.value]
    if name is not None:
        binding = call.site.scope.found(name)
        values = [each.value for each in binding[0]] if binding is not None else []
        mine = [each for each in bits if [each.site.call] == values]
    if len(mine) != 1:
        return None
    found = _document(_QUANTIZATION, mine[0], calls, _BY_QUANTIZATION)
    if found.unknown:
        return None
    return replace(found.root, key_span=key)
