"""Rules about flags of scripts that use the Trainer."""

import re
from collections.abc import Collection, Iterator, Mapping, Set
from difflib import SequenceMatcher
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.frontend.nodes import place as span_of
from tunec.compiler.lints.conditions import Need, lacking
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import BESIDE_TRL, OF_TRL, OWN_PARSERS, example_of
from tunec.compiler.lints.facts.lora import MINICPM_FLAGS, is_minicpm
from tunec.compiler.lints.facts.training_loop import number_of
from tunec.compiler.lints.kinds import fields_of, schema
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

_FASTCHAT: Final = (
    *("model_name_or_path", "trust_remote_code", "padding_side", "data_path", "eval_data_path"),
    *("lazy_preprocess", "cache_dir", "model_max_length", "flash_attn", "lora_r", "lora_alpha"),
    *("lora_dropout", "lora_target_modules", "lora_weight_path", "lora_bias", "q_lora"),
)
_LLAVA: Final = (
    *("model_name_or_path", "version", "freeze_backbone", "tune_mm_mlp_adapter", "vision_tower"),
    *("mm_vision_select_layer", "pretrain_mm_mlp_adapter", "mm_projector_type"),
    *("mm_use_im_start_end", "mm_use_im_patch_token", "mm_patch_merge_type", "data_path"),
    *("mm_vision_select_feature", "lazy_preprocess", "is_multimodal", "image_folder", "cache_dir"),
    *("image_aspect_ratio", "freeze_mm_mlp_adapter", "mpt_attn_impl", "model_max_length"),
    *("double_quant", "quant_type", "bits", "lora_enable", "lora_r", "lora_alpha", "lora_dropout"),
    *("lora_weight_path", "lora_bias", "mm_projector_lr", "group_by_modality_length"),
)
_SCRIPTS: Final[Mapping[str, tuple[re.Pattern[str], tuple[str, ...]]]] = {
    "FastChat": (re.compile(r"(^|/)fastchat/train/train(_mem|_lora|_xformers)?\.py$"), _FASTCHAT),
    "LLaVA": (re.compile(r"(^|/)llava/train/train(_mem|_xformers)?\.py$"), _LLAVA),
}
"""lm-sys/FastChat 0e6d3e4 fastchat/train; haotian-liu/LLaVA c121f04 llava/train/train.py."""
_OF_VISUALGLM: Final = "visualglm/0.4.12.json"
_OF_MINICPM: Final = "minicpm-v/0dbb566.json"
_FORKED: Final = re.compile(r"video|unfreeze|mm_tunable|mm_|rope_|attn_|frames|image_|group_by|moe")
"""Matches parts of flags that forks of LLaVA added to its script."""
_LIKE: Final = 0.88


_VISUALGLM: Final = re.compile(r"(^|/)finetune_visualglm\.py$")
"""THUDM/VisualGLM-6B e314fb9, with its own flags and those of SwissArmyTransformer."""


@rule(
    "error",
    "parse",
    consumers=("transformers",),
    reads=("launch:script", *keys("hf", *MINICPM_FLAGS)),
    unless="declared",
)
def script_flag_unknown(run: LintContext) -> Iterator[Finding]:
    """A maker's script on transformers' parser does not have a given flag."""
    started = {each.name: _first(each) for each in run.of("launch")}
    for document in run.of("sat"):
        if _VISUALGLM.search(started.get(document.name, "")):
            for each in _of_parser("VisualGLM", document, _flags(_OF_VISUALGLM)):
                yield replace(each, severity=None)
    for document in run.of("hf"):
        if is_minicpm(document) and not document.is_view:
            known = _flags(_OF_MINICPM) | fields_of("hf")
            yield from _of_parser("MiniCPM-V", document, known)
    yield from _of_trainers(run, started)
    for document in run.of("launch"):
        yield from _of_own_parser(document)
    for document in run.of("sft", "dpo"):
        is_own = OF_TRL.search(started.get(document.name, "")) is not None
        if is_own and document.format == "shell" and not document.is_view:
            yield from (replace(each, severity=None) for each in _of_trl(document))


def _of_trl(document: Document) -> Iterator[Finding]:
    """TRL's own scripts do not have a given flag in any release."""
    known = fields_of(document.kind) | fields_of("hf") | BESIDE_TRL
    for path, at in document.found.items():
        if "." not in path and not any(flag.startswith(path) for flag in known):
            yield _unknown_flag("TRL", at, known)


def _of_own_parser(document: Document) -> Iterator[Finding]:
    """A script with its own parser does not have one of the flags that follow it."""
    script = _first(document)
    maker = next((name for name, (path, _) in OWN_PARSERS.items() if path.search(script)), None)
    at = document.get("script")
    if maker is None or at is None or _is_of_another(at):
        return
    known = OWN_PARSERS[maker][1]
    if not _is_mostly_known(at, known):
        return  # another script at a place of the same name
    for word in at.node.items or ():
        name = str(word.value).partition("=")[0]
        path = name.removeprefix("--").replace("-", "_")
        if name.startswith("--") and path and not any(each.startswith(path) for each in known):
            flag = replace(word, key_span=span_of(word))
            yield replace(
                _unknown_flag(maker, Place(document, path, flag), known), severity=None, fix=None
            )


def _is_mostly_known(script: Place, known: Collection[str]) -> bool:
    """Whether at least half of the flags belong to a maker's script."""
    flags = [
        str(each.value).partition("=")[0].removeprefix("--").replace("-", "_")
        for each in script.node.items or ()
        if str(each.value).startswith("--")
    ]
    mine = [flag for flag in flags if any(each.startswith(flag) for each in known)]
    return 2 * len(mine) >= len(flags)


def _is_of_another(script: Place) -> bool:
    """Whether the started program takes configuration keys as flags, such as `--optim.lr`."""
    words = (str(each.value).partition("=")[0] for each in script.node.items or ())
    return any(word.startswith("--") and "." in word for word in words)


def _of_parser(maker: str, document: Document, known: frozenset[str]) -> Iterator[Finding]:
    """Findings for flags that are neither known nor a prefix that argparse accepts for one."""
    for path, place in document.found.items():
        if "." not in path and not any(flag.startswith(path) for flag in known):
            yield _unknown_flag(maker, place, known)


@cached()
def _flags(name: str) -> frozenset[str]:
    return frozenset(each.replace("-", "_") for each in schema(name)["properties"])


def _of_trainers(run: LintContext, started: Mapping[str, str]) -> Iterator[Finding]:
    for document in run.of("hf", "sft"):
        script = started.get(document.name, "")
        maker = next((name for name, (path, _) in _SCRIPTS.items() if path.search(script)), None)
        if maker is None or document.is_view or document.format != "shell":
            continue
        known = frozenset(_SCRIPTS[maker][1]) | fields_of("hf")
        strange = _strange(document, known)
        is_forked = any(_FORKED.search(path) for path in strange)
        for path in strange:
            is_short = any(flag.startswith(path) for flag in known)
            if not is_short and (not is_forked or _near(path, known)):
                yield _unknown_flag(maker, document.found[path], known)


def is_of_a_fork(document: Document) -> bool:
    """Whether the flags that LLaVA does not have are typical of its forks."""
    return any(_FORKED.search(path) for path in _strange(document, {*_LLAVA, *fields_of("hf")}))


def _strange(document: Document, known: Set[str]) -> list[str]:
    return [path for path in document.found if "." not in path and path not in known]


def _first(launch: Document) -> str:
    words = launch.value("script")
    first = words[0] if isinstance(words, list) and words else words
    return first if isinstance(first, str) else ""


def _near(path: str, known: frozenset[str]) -> str | None:
    best = nearest(path, known)[:1]
    is_near = bool(best) and SequenceMatcher(None, path, best[0]).ratio() >= _LIKE
    return best[0] if is_near else None


def _unknown_flag(maker: str, at: Place, known: frozenset[str]) -> Finding:
    near = _near(at.path, known)
    return Finding(
        f"{maker}'s script has no flag `{at.path}`",
        (at.key_label("refused"),),
        ("its parser stops with an error: unrecognized, or not used",),
        f"did you mean `{near}`?" if near else "remove it",
        Fix((at.renamed(near),), "unsafe") if near else None,
        severity=None if near else "warning",
    )


_TASKS: Final = ("do_train", "do_eval", "do_predict")
_OF_TRAINING: Final = (
    *("num_train_epochs", "max_steps", "learning_rate", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "train_file", "save_steps", "warmup_steps", "warmup_ratio"),
)


@rule("warning", "silent", consumers=("transformers",), reads=("launch:script",))
def training_not_asked_for(run: LintContext) -> Iterator[Finding]:
    """An example script of transformers has training flags, but not `--do_train`."""
    for document in run.of("hf", "sft"):
        if document.format != "shell" or any(document.get(each) for each in _TASKS):
            continue
        asked = next((each for key in _OF_TRAINING if (each := document.get(key))), None)
        script = example_of(run, document)
        if asked is not None and script is not None:
            yield Finding(
                "nothing is trained: --do_train is left out",
                (script.label("trains only with --do_train"), asked.label("", primary=False)),
                (
                    "the examples load model and data, and end if no task is requested",
                    "eval_strategy turns on evaluation, not training",
                ),
                "add --do_train",
            )


_COLUMNS: Final = ("prompt_column", "response_column")
"""Flags in every command of the script, which no other script with that parser has."""
_DATA: Final = (
    Need("do_train", ("train_file",), "--do_train requires a train dataset"),
    Need("do_eval", ("validation_file",), "--do_eval requires a validation dataset"),
    Need("do_predict", ("test_file",), "--do_predict requires a test dataset"),
)
_PREFIX: Final = Need("prefix_projection", ("pre_seq_len",))
_LOADED: Final = Need("ptuning_checkpoint", ("pre_seq_len",))
_MOST: Final = 1e-3
"""A bound between two rates of zai-org/ChatGLM2-6B cb8e8b4 ptuning: train.sh has 2e-2 for prefixes,
ds_train_finetune.sh 1e-4 for the whole model."""


@rule("error", "init", consumers=("transformers",), reads=("hf:prompt_column",))
def chatglm_flags_clash(run: LintContext) -> Iterator[Finding]:
    """ChatGLM's ptuning/main.py refuses flags, or does not read them without others."""
    for document in run.of("hf"):
        if not document.is_view and all(document.get(key) for key in _COLUMNS):
            yield from _without_data(run, document)
            yield from _without_prefix(run, document)


def _without_data(run: LintContext, document: Document) -> Iterator[Finding]:
    for need in _DATA:
        found = lacking(run, document, need)
        if found is not None:
            yield Finding(
                f"{found[0].path} needs {need.others[0]}",
                (found[0].label("refused"),),
                (need.why,),
                f"write --{need.others[0]}, or remove it",
            )


def _without_prefix(run: LintContext, document: Document) -> Iterator[Finding]:
    projected, loaded = lacking(run, document, _PREFIX), lacking(run, document, _LOADED)
    if projected is not None:
        yield Finding(
            "prefix_projection does nothing without pre_seq_len",
            (projected[0].label("not read"),),
            ("without a prefix the whole model is trained",),
            "write --pre_seq_len 128, or remove it",
            severity="warning",
            consequence="silent",
        )
    if loaded is not None:
        yield Finding(
            "ptuning_checkpoint needs pre_seq_len",
            (loaded[0].label("a prefix for a model without one"),),
            ("AttributeError: 'ChatGLMModel' object has no attribute 'prefix_encoder'",),
            "write the --pre_seq_len that it was trained with",
            consequence="load",
        )
    at, length = document.get("learning_rate"), document.get("pre_seq_len")
    rate = number_of(at.value) if at is not None else None
    is_whole = length is None and "pre_seq_len" not in document.unknown
    if at is not None and is_whole and rate is not None and rate > _MOST:
        yield Finding(
            f"learning rate {at.value} is high for the whole model",
            (at.label("usual for prefix tuning"),),
            ("without pre_seq_len every weight is trained; the makers use 1e-4 for that",),
            "write --learning_rate 1e-4, or --pre_seq_len 128",
            severity="warning",
            consequence="silent",
        )
