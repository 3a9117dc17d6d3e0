"""Keys that an adapter method does not have, or that it refuses."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.conditions import Need, check_need, lacking, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.effective import releases_around
from tunec.compiler.lints.facts.known_keys import fields_ever
from tunec.compiler.lints.facts.model import refused_block_sizes
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace

_MEANT: Final = {
    "lora_rank": "r",
    "rank": "r",
    "lora_r": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "lora_target": "target_modules",
    "lora_target_modules": "target_modules",
    "targets": "target_modules",
    "lora_modules_to_save": "modules_to_save",
    "additional_target": "modules_to_save",
    "lora_bias_type": "bias",
    "rslora": "use_rslora",
    "dora": "use_dora",
    "peft_layers_to_transform": "layers_to_transform",
}
"""Names that other tools use for a key, with PEFT's own name."""
_OF_WEIGHTS: Final = (
    *("r", "lora_alpha", "lora_dropout", "target_modules", "use_dora", "use_rslora", "bias"),
    *("init_lora_weights", "rank_pattern", "alpha_pattern", "layers_to_transform"),
)
_PROMPTS: Final = ("PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING")
"""Methods that add to the input; they have none of the keys of methods that change weights."""
_OF_LORA: Final = (
    *("lora_alpha", "lora_dropout", "init_lora_weights", "use_dora", "use_rslora", "loftq_config"),
    *("layer_replication", "lora_bias", "target_parameters"),
)
_MOVED: Final[Mapping[str, Mapping[str, str]]] = {
    "LOHA": {"lora_alpha": "alpha", "lora_dropout": "rank_dropout"},
    "LOKR": {"lora_alpha": "alpha", "lora_dropout": "rank_dropout"},
    "OFT": {"lora_dropout": "module_dropout", "block_size": "oft_block_size"},
    "BOFT": {"lora_dropout": "boft_dropout", "block_size": "boft_block_size"},
    "VERA": {"lora_dropout": "vera_dropout"},
    "IA3": {"init_lora_weights": "init_ia3_weights"},
    "FOURIERFT": {"lora_alpha": "scaling"},
    "HRA": {},
}
"""Methods other than LoRA, with their own names for LoRA's keys."""
_LACKING: Final[Mapping[str, tuple[str, ...]]] = {
    "BOFT": ("r", "alpha"),
    "FOURIERFT": ("r", "alpha"),
    "HRA": ("alpha",),
    "IA3": ("r", "alpha", "bias", "layers_to_transform", "layers_pattern"),
    "LOHA": ("bias",),
    "LOKR": ("bias",),
    "OFT": ("alpha",),
    "VERA": ("alpha",),
}
"""Further keys that these methods do not have: peft 0.10.0, 0.13.2, 0.15.2, 0.17.1 and 0.21.2
tuners/*/config.py."""
_IGNORED: Final = "PEFT warns of unexpected keywords, and continues without them"
_ALWAYS: Final = frozenset({"auto_mapping", "peft_version", "base_model_class", "parent_library"})


@rule("error", "silent", consumers=("peft",), reads=("peft:*",))
def adapter_key_unread(run: LintContext) -> Iterator[Finding]:
    """A key of adapter_config.json that its method does not have."""
    for document in run.of("peft"):
        kind = str(document.value("peft_type", "")).upper()
        if document.is_view:
            continue
        is_saved = document.get(_OF_SAVED) is not None
        for found in _strange_keys(run, document, kind):
            yield replace(found, severity="note") if is_saved else found


_OF_SAVED: Final = "inference_mode"
"""peft 0.21.2 config.py `PeftConfigMixin`: what PEFT saves has it, and an old PEFT's own keys."""


def _strange_keys(run: LintContext, document: Document, kind: str) -> Iterator[Finding]:
    yield from _unnamed(document)
    if kind == "LORA":
        yield from _of_lora(run, document)
    elif kind in _PROMPTS:
        yield from _unread_of_prompts(document, kind)
    elif kind in _MOVED:
        yield from _of_relatives(document, kind)


def _unnamed(document: Document) -> Iterator[Finding]:
    """Report `method: lora`, which is sometimes written instead of `peft_type`."""
    at = document.get("method")
    if at is not None and document.get("peft_type") is None:
        yield replace(_finding(at, [], "PEFT's file"), help="write peft_type", severity="note")


def _of_lora(run: LintContext, document: Document) -> Iterator[Finding]:
    known = fields_ever("lora_config")
    release = run.release("peft")
    if release.is_named and str(release.version) > known_releases("lora_config")[-1]:
        return  # keys may have come since
    free = known.difference(document.found)
    for path, at in document.found.items():
        if "." in path or path in known or path in _ALWAYS or path.startswith("_"):
            continue
        near = [_MEANT[path]] if path in _MEANT else nearest(path, free)[:1]
        found = _finding(at, near, "LORA")
        yield replace(found, severity="note") if at.value in (None, False) else found
    if release.is_named:
        yield from _come_later(run, document)


def _come_later(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report keys of a later release: PEFT warns about them from 0.14 on, and fails before."""
    release = run.release("peft")
    around = releases_around("lora_config", str(release.version))
    here = [class_schema("lora_config", each)["properties"] for each in around]
    every = known_releases("lora_config")
    is_refused = run.runs("peft<0.14") is True
    for path, at in document.found.items():
        if "." in path or path in _ALWAYS or any(path in each for each in here):
            continue
        later = [each for each in every if path in class_schema("lora_config", each)["properties"]]
        if not later or not (is_refused or at.value not in (None, False, [], {}, "none")):
            continue
        why = f"TypeError: unexpected keyword argument {path!r}" if is_refused else _IGNORED
        yield Finding(
            f"{release} has no key `{path}`",
            (at.key_label("refused" if is_refused else "not read"),),
            (why, f"known to peft {later[0]}"),
            f"use peft {later[0]} or later, or remove it",
            consequence="parse" if is_refused else "silent",
        )


def _unread_of_prompts(document: Document, kind: str) -> Iterator[Finding]:
    for key in _OF_WEIGHTS:
        at = document.get(key)
        if at is not None and at.value not in (None, [], {}, False):
            yield _finding(at, [], kind)


def _of_relatives(document: Document, kind: str) -> Iterator[Finding]:
    own = _MOVED[kind]
    for key in dict.fromkeys((*own, *_OF_LORA, *_LACKING[kind])):
        at = document.get(key)
        if at is not None and at.value not in (None, [], {}, False, "none"):
            free = [own[key]] if key in own and own[key] not in document.found else []
            yield _finding(at, free, kind)


def _finding(at: Place, near: list[str], kind: str) -> Finding:
    return Finding(
        f"{kind} has no key `{at.path}`",
        (at.key_label("not read"),),
        (_IGNORED,),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((at.renamed(near[0]),), "unsafe") if near else None,
        severity=None if near else "warning",
    )


_TASKS: Final = (
    *("SEQ_CLS", "SEQ_2_SEQ_LM", "CAUSAL_LM", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"),
)
_VIRTUAL: Final = ("num_virtual_tokens",)
_TEXT: Final = ("prompt_tuning_init=TEXT",)
_NEEDS: Final = (
    *(Need(f"peft_type={kind}", _VIRTUAL, "the prompt has a length") for kind in _PROMPTS),
    Need("prompt_tuning_init=TEXT", ("tokenizer_name_or_path",), "the text is tokenized"),
    Need("prompt_tuning_init=TEXT", ("prompt_tuning_init_text",), "there is no text"),
    Need("tokenizer_kwargs", _TEXT, "nothing is tokenized"),
    Need("peft_type=ADALORA", ("total_step",), "the ranks are cut along a schedule"),
)
_TASKLESS: Final = tuple(
    Need(f"peft_type={kind}", ("task_type",), "the model is wrapped by its task: KeyError: None")
    for kind in _PROMPTS
)
_INITIAL: Final = ("RANDOM", "TEXT", "SAMPLE_VOCAB")
"""peft 0.10.0 to 0.21.2 tuners/prompt_tuning/config.py `PromptTuningInit`: any other word matches
none of the cases that `PromptEmbedding` distinguishes."""
_ENCODERS: Final = ("MLP", "LSTM")
_UNREAD: Final = (
    Need("prompt_tuning_init_text", _TEXT, "the prompt begins at random"),
    Need("r & peft_type=ADALORA", ("init_r",), "AdaLoRA begins at init_r and ends at target_r"),
)


@rule("error", "parse", consumers=("peft",), reads=("peft:*",))
def adapter_method_refused(run: LintContext) -> Iterator[Finding]:
    """A setting that an adapter method other than LoRA refuses or does not read."""
    for document in run.of("peft"):
        if document.is_view:
            continue
        for need in _NEEDS:
            yield from check_need(run, document, need)
        for need in _TASKLESS:
            for found in check_need(run, document, need):
                mended = replace(found, help="write task_type: CAUSAL_LM", consequence="init")
                yield replace(mended, severity="warning")  # a script may add it
        for need in _UNREAD:
            yield from _unread(run, document, need)
        yield from _words(document)
        yield from _method_of_prompts(document)
        yield from _of_adalora(document)
        yield from _ranks_of_adalora(document)
        yield from _of_ia3(document)
        yield from _of_prefixes(run, document)
    yield from refused_block_sizes(run)


def _unread(run: LintContext, document: Document, need: Need) -> Iterator[Finding]:
    found = lacking(run, document, need)
    if found is not None:
        yield Finding(
            f"{found[0].path} does nothing without {need.others[0].replace('=', ': ')}",
            (found[0].label("not read"),),
            (need.why,),
            f"write {need.others[0].replace('=', ': ')}, or remove it",
            severity="warning",
            consequence="silent",
        )


def _words(document: Document) -> Iterator[Finding]:
    task = document.get("task_type")
    if task is not None and isinstance(task.value, str) and task.value not in _TASKS:
        yield Finding(
            f"task_type cannot be {task.value}",
            (task.label("refused"),),
            (f"taken: {', '.join(_TASKS)}",),
            "write CAUSAL_LM",
        )


def _method_of_prompts(document: Document) -> Iterator[Finding]:
    """Report unknown words of prompt methods: one is refused, the other one is silently ignored."""
    encoder = document.get("encoder_reparameterization_type")
    if where(document, "peft_type=P_TUNING") and encoder and encoder.value not in _ENCODERS:
        yield Finding(
            f"encoder_reparameterization_type cannot be {encoder.value}",
            (encoder.label("refused"),),
            ("Prompt encoder type not recognized",),
            "write MLP, or LSTM",
            consequence="init",
        )
    begin = document.get("prompt_tuning_init")
    if begin is None or where(document, "peft_type=PROMPT_TUNING") is None:
        return
    if isinstance(begin.value, str) and begin.value not in _INITIAL:
        is_case = begin.value.upper() in _INITIAL
        yield Finding(
            f"prompt_tuning_init {begin.value} is none of {', '.join(_INITIAL)}",
            (begin.label("read as RANDOM"),),
            ("the word is compared, and never refused: the prompt begins at random",),
            f"write {begin.value.upper()}" if is_case else "write TEXT",
            severity="warning",
            consequence="silent",
        )


def _ranks_of_adalora(document: Document) -> Iterator[Finding]:
    """AdaLoRA cuts ranks from init_r down to target_r, so init_r has to be larger."""
    first, last = (_number(document.value(key, n)) for key, n in (("init_r", 12), ("target_r", 8)))
    at = document.get("target_r") or document.get("init_r")
    if where(document, "peft_type=ADALORA") is None or at is None or not first or not last:
        return
    if last >= first:
        yield Finding(
            f"AdaLoRA begins at rank {first} and ends at {last}: there is nothing to cut",
            (at.label("not below init_r"),),
            (
                "where a script calls update_and_allocate, kthvalue() is out of range after tinit",
                "if it is not called, as in Trainer, every rank stays at init_r",
            ),
            f"write target_r below {first}, or init_r above {last}",
            severity="warning",
            consequence="step",
        )


def _of_adalora(document: Document) -> Iterator[Finding]:
    if where(document, "peft_type=ADALORA") is None:
        return
    for key in ("use_dora", "loftq_config"):
        at = where(document, key)
        if at is not None:
            yield Finding(f"ADALORA refuses {key}", (at.label("refused"),), (), "remove it")
    given = [_number(document.value(key, 0)) for key in ("total_step", "tinit", "tfinal")]
    total, first, last = (each or 0 for each in given)
    at = document.get("tinit") or document.get("tfinal")
    if at is not None and None not in given and total and first >= total - last:
        yield Finding(
            f"tinit {first} and tfinal {last} leave none of {total} steps",
            (at.label("refused"),),
            ("the ranks are cut between the first tinit and the last tfinal steps",),
            "lower tinit or tfinal",
        )


def _of_ia3(document: Document) -> Iterator[Finding]:
    inner, targets = document.get("feedforward_modules"), document.get("target_modules")
    if where(document, "peft_type=IA3") is None or inner is None or targets is None:
        return
    if not isinstance(inner.value, list) or not isinstance(targets.value, list):
        return
    lost = [each for each in inner.value if each not in targets.value]
    if lost:
        yield Finding(
            f"feedforward_modules holds {lost[0]}, which is no target",
            (inner.label("refused"), targets.label("", primary=False)),
            (),
            f"add {lost[0]} to target_modules",
        )


def _of_prefixes(run: LintContext, document: Document) -> Iterator[Finding]:
    """Report prefix tuning, whose prefix is a key-value cache, beside recomputation."""
    kind = where(document, "peft_type=PREFIX_TUNING")
    if kind is None or run.runs("peft>=0.14") is False:
        return
    for at in run.each("trainer", "gradient_checkpointing"):
        if at.value is True:
            yield Finding(
                "gradient_checkpointing cannot stand beside prefix tuning",
                (at.label("refused"), kind.label("", primary=False)),
                ("Prefix tuning does not work with gradient checkpointing",),
                "turn it off, or use another method",
                consequence="init",
            )
            return


def _number(value: Any) -> int | None:
    return value if is_whole(value) else None
