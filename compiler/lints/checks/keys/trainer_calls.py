"""Arguments of trainers' calls, and names, that their release has moved or removed."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix, Severity
from tunec.compiler.frontend.python_calls import Call
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.effective import default_of
from tunec.compiler.lints.environment import split_requirement
from tunec.compiler.lints.python_files import calls_of, imports_of
from tunec.compiler.lints.rule import Consequence, Finding, rule

_KINDS: Final = ("hf", *TRL, "model", "peft")


class MovedArguments(Struct, frozen=True):
    """Arguments that a class no longer takes."""

    names: frozenset[str]
    since: str
    help: str
    consequence: Consequence | None = None


_NAME: Final = "write `processing_class`"
_CONFIG: Final = "give it to {0}, which `args` takes"
_OF_LOADERS: Final = "give it to DataLoaderConfiguration, which `dataloader_config` takes"
_LENGTH: Final = "give max_length to SFTConfig, which `args` takes"
_OF_SFT: Final = frozenset(
    {
        *("dataset_text_field", "packing", "dataset_num_proc", "dataset_batch_size"),
        *("neftune_noise_alpha", "model_init_kwargs", "dataset_kwargs", "eval_packing"),
        *("num_of_sequences", "chars_per_token", "infinite"),
    }
)
_OF_DPO: Final = frozenset(
    {
        *("beta", "label_smoothing", "loss_type", "label_pad_token_id", "padding_value"),
        *("truncation_mode", "max_length", "max_prompt_length", "max_target_length"),
        *("is_encoder_decoder", "disable_dropout", "generate_during_eval", "reference_free"),
        *("precompute_ref_log_probs", "dataset_num_proc", "model_init_kwargs"),
        *("ref_model_init_kwargs", "model_adapter_name", "ref_adapter_name"),
        "force_use_ref_model",
    }
)
_TOKENIZER: Final = frozenset({"tokenizer"})
_BITS: Final = frozenset({"load_in_4bit", "load_in_8bit"})
_QUANTIZATION: Final = "give it to BitsAndBytesConfig, which `quantization_config` takes"
_FLASH: Final = frozenset({"use_flash_attention_2"})
_ATTENTION: Final = 'write attn_implementation="flash_attention_2"'
_LOADERS: Final = frozenset({"dispatch_batches", "even_batches", "use_seedable_sampler"})
MOVED: Final[Mapping[str, tuple[MovedArguments, ...]]] = {
    "trl.SFTTrainer": (
        MovedArguments(_TOKENIZER, "trl>=0.16", _NAME),
        MovedArguments(frozenset({"max_seq_length"}), "trl>=0.13", _LENGTH),
        MovedArguments(_OF_SFT, "trl>=0.13", _CONFIG),
        MovedArguments(
            frozenset({"max_length", "padding_free", "completion_only_loss"}), "", _CONFIG
        ),
    ),
    "trl.DPOTrainer": (
        MovedArguments(_TOKENIZER, "trl>=0.16", _NAME),
        MovedArguments(_OF_DPO, "trl>=0.13", _CONFIG),
    ),
    "trl.KTOTrainer": (MovedArguments(_TOKENIZER, "trl>=0.14", _NAME),),
    "trl.RewardTrainer": (MovedArguments(_TOKENIZER, "trl>=0.15", _NAME),),
    "trl.GRPOTrainer": (
        MovedArguments(_TOKENIZER, "", _NAME),
        MovedArguments(
            frozenset({"num_generations", "max_completion_length", "beta"}), "", _CONFIG
        ),
    ),
    "accelerate.Accelerator": (MovedArguments(_LOADERS, "accelerate>=1.0", _OF_LOADERS),),
    "transformers.Trainer": (MovedArguments(_TOKENIZER, "transformers>=5.0", _NAME),),
    "transformers.Seq2SeqTrainer": (MovedArguments(_TOKENIZER, "transformers>=5.0", _NAME),),
    "transformers.from_pretrained": (
        MovedArguments(_BITS, "transformers>=5.0", _QUANTIZATION, "load"),
        MovedArguments(_FLASH, "transformers>=4.53", _ATTENTION, "load"),
    ),
}
"""trl 0.12.2 trainer/sft_trainer.py and dpo_trainer.py, `_deprecate_arguments` until 0.13 and
`deprecate_kwarg` until 0.16, kto_trainer.py until 0.14, reward_trainer.py until 0.15; 0.17.0 to
1.16.0: none has the arguments, nor `**kwargs`. transformers 4.57.6 trainer.py, until 5.0.
accelerate 0.33.0 accelerator.py has three arguments more than 1.1.1, which it announces to remove
in 1.0. transformers modeling_utils.py `from_pretrained` takes the bits until 4.57.6 and the flag of
flash attention until 4.52.4; 5.3.0 and 4.53.3 pass them on to the model's class."""
_PATCHED: Final = re.compile(r"\b(?:import|from)\s+unsloth\b")
_SINCE: Final = "unsloth>=2025.2"
"""unsloth 2025.2 models/rl.py `_patch_trl_rl_trainers` replaces TRL's classes."""
_BEFORE: Final = "unsloth<2026.8.9"
"""unsloth 2026.8.3 and 2026.8.8 trainer.py `_backwards_compatible_trainer`: moved arguments are
read if no `args` are given; 2026.8.15 sets them on `args` (unslothai/unsloth#8374)."""


@rule(
    "error",
    "parse",
    consumers=("trl", "transformers", "accelerate"),
    reads=tuple(f"{kind}:*" for kind in _KINDS),
)
def trainer_argument_moved(run: LintContext) -> Iterator[Finding]:
    """A trainer's call passes an argument that its release has elsewhere, or under another name."""
    for document in scripts_of(run):
        if _TRIES.search(document.text):
            continue  # it goes by what the class takes
        is_patched = _PATCHED.search(document.text) is not None and run.runs(_SINCE) is not False
        calls = calls_of(document.name, document.text)
        for call in () if calls is None else calls.found:
            yield from _of_call(call, run, document, is_patched=is_patched)


_TRIES: Final = re.compile(
    r"except\s*\(?[^:\n]*\bTypeError\b|\bsignature\(\s*\w*(?:Trainer|Accelerator)\b"
)
"""A script that tries the newer name and then the older, or inspects the class for either."""


def scripts_of(run: LintContext) -> Iterator[Document]:
    """One document of each Python file, since all documents of a file hold its text."""
    first: dict[str, Document] = {}
    for each in run.documents:
        if each.format == "python" and not each.is_view:
            first.setdefault(each.name, each)
    return iter(first.values())


def _of_call(
    call: Call, run: LintContext, document: Document, *, is_patched: bool
) -> Iterator[Finding]:
    for name, node in call.fields.items():
        moved = next((e for e in MOVED.get(_short(call), ()) if name in e.names), None)
        place = Place(document, name, node)
        if moved is None:
            continue
        if not is_patched:
            if is_checked(run, moved.since) and not _is_older(run, moved.since):
                yield _refused(call, place, moved, run)
        elif "args" in call.fields and name not in _TOKENIZER and run.runs(_BEFORE):
            yield _dropped(call, place, moved, is_missed=_is_missed(run, call, place))


def _is_older(run: LintContext, since: str) -> bool:
    """Whether the release that goes with the required transformers is older than `since`."""
    package, specifiers = split_requirement(since)
    if not since or not run.release("transformers").is_named:
        return False
    release = run.release(package)
    return not release.is_known and not specifiers.contains(release.version)


def _short(call: Call) -> str:
    return f"{call.package}.{call.name}"


def _refused(call: Call, place: Place, moved: MovedArguments, run: LintContext) -> Finding:
    renamed = place.renamed("processing_class") if place.path in _TOKENIZER else None
    return Finding(
        f"{call.name} takes no argument `{place.path}`",
        (place.key_label("TypeError: unexpected keyword argument"),),
        notes(run, "", moved.since),
        _help(call, moved),
        None if renamed is None else Fix((renamed,), "safe"),
        severity=_severity(run, moved.since),
        consequence=moved.consequence,
    )


def _severity(run: LintContext, since: str) -> Severity | None:
    """The severity: a note if no release is given, as in `key-of-another-release`."""
    if not since or run.runs(since) is not None:
        return severity(run, since)
    is_required = run.release(split_requirement(since)[0]).is_known
    return severity(run, since) if is_required else "note"


_LENGTHS: Final = ("max_length", "max_seq_length")
_LOADERS_OF: Final = ("model", "unsloth")


def _is_missed(run: LintContext, call: Call, place: Place) -> bool:
    """Whether the run differs without an argument: what it asks for is not so in any case.

    Unsloth takes the length from the model, which was loaded with one (unsloth 2025.12.10
    models/rl.py).
    """
    kind, name = call.name.removesuffix("Trainer").lower(), place.path
    if name in _LENGTHS:
        loaded = [each.value for one in _LOADERS_OF for each in run.each(one, "max_seq_length")]
        return place.value is not None and bool(loaded) and place.value not in loaded
    written = [each.value for each in run.each(kind, name)]
    usual = default_of(run, kind, name)
    return place.value not in (written or ([usual.value] if usual.known else []))


def _dropped(call: Call, place: Place, moved: MovedArguments, *, is_missed: bool) -> Finding:
    return Finding(
        f"{call.name}'s `{place.path}` is dropped",
        (place.key_label("without effect"),),
        ("Unsloth takes it from the call, and reads it only where no `args` are given",),
        _help(call, moved),
        severity="warning" if is_missed else "note",
        consequence="silent",
    )


def _help(call: Call, moved: MovedArguments) -> str:
    return moved.help.format(call.name.replace("Trainer", "Config"))


class Gone(Struct, frozen=True):
    """Names that a package has removed or moved."""

    names: frozenset[str]
    since: str
    help: str


def _moved(home: str, *names: str) -> Gone:
    return Gone(frozenset(names), "trl>=0.29", f"import it from trl.experimental.{home}")


def _left(home: str, *names: str) -> Gone:
    help_ = f"import it from trl.experimental.{home}, which trl 1.16 has no longer"
    return Gone(frozenset(names), "trl>=0.29", help_)


def _gone(since: str, help_: str, *names: str) -> Gone:
    return Gone(frozenset(names), since, help_)


_OF_COMPLETIONS: Final = (
    "leave it out: SFTConfig's completion_only_loss=True trains on completions, where the data"
    " have prompts and completions apart"
)
_IMAGES: Final = "write AutoModelForImageTextToText"
_TEXTS: Final = "read the texts by `datasets.load_dataset`"
_NOWHERE: Final = "pin trl<0.24: later releases do not have it"
_KBIT: Final = "write prepare_model_for_kbit_training"
GONE: Final[Mapping[str, tuple[Gone, ...]]] = {
    "trl": (
        _gone("trl>=0.20", _OF_COMPLETIONS, "DataCollatorForCompletionOnlyLM"),
        _gone("trl>=0.20", "write pack_dataset", "pack_examples"),
        _gone("trl>=0.21", "pin trl<0.21: later releases do not have it", "TextEnvironment"),
        _gone("trl>=0.24", _NOWHERE, "IterativeSFTConfig", "IterativeSFTTrainer"),
        _gone("trl>=0.24", _NOWHERE, "DDPOConfig", "DDPOTrainer"),
        _gone("trl>=0.24", _NOWHERE, "AlignPropConfig", "AlignPropTrainer"),
        _gone("trl>=0.26", "write clone_chat_template", "setup_chat_format"),
        *(
            _moved(home, f"{name}Config", f"{name}Trainer")
            for home, name in (("cpo", "CPO"), ("orpo", "ORPO"), ("gkd", "GKD"))
        ),
        _moved("online_dpo", "OnlineDPOConfig", "OnlineDPOTrainer"),
        *(
            _left(home, f"{name}Config", f"{name}Trainer")
            for home, name in (("bco", "BCO"), ("nash_md", "NashMD"), ("xpo", "XPO"))
        ),
        _left("prm", "PRMConfig", "PRMTrainer"),
        _left("ppo", "PPOConfig", "PPOTrainer", "AutoModelForCausalLMWithValueHead"),
        _left("ppo", "AutoModelForSeq2SeqLMWithValueHead"),
    ),
    "transformers": (
        _gone("transformers>=4.50", "import it from torch.optim", "AdamW"),
        _gone("transformers>=5.0", "write IntervalStrategy", "EvaluationStrategy"),
        _gone("transformers>=5.0", _IMAGES, "AutoModelForVision2Seq"),
        _gone("transformers>=5.0", "write AutoModelForCausalLM", "AutoModelWithLMHead"),
        _gone("transformers>=5.0", _TEXTS, "LineByLineTextDataset", "TextDataset"),
    ),
    "peft": (
        _gone("peft>=0.10", _KBIT, "prepare_model_for_int8_training"),
        _gone("peft>=0.19", "write MissConfig, which took its place", "BoneConfig"),
        _gone("peft>=0.19", "write MissModel, which took its place", "BoneModel"),
    ),
}
"""Removed or moved names by package, from whichever module they are imported. trl 0.18.2 to 1.16.0
__init__.py and trainer/__init__.py, the releases between which each name was removed; experimental/
of 0.29.0, 1.0.0, 1.6.0, 1.10.0 and 1.16.0. transformers 4.49.0 and 4.50.3 optimization.py; 4.57.6
and 5.0.0 trainer_utils.py, models/auto/modeling_auto.py, data/datasets/language_modeling.py. peft
0.9.0 to 0.21.2 __init__.py."""
_HOMES: Final[Mapping[str, str]] = {
    "judges": "1.1",
    "self_distillation": "1.6",
    **dict.fromkeys(("gfpo", "papo"), "1.8"),
    **dict.fromkeys(("dppo", "openenv"), "1.9"),
    "ppo": "1.13",
    **dict.fromkeys(("bco", "grpo_with_replay_buffer", "gspo_token"), "1.14"),
    **dict.fromkeys(("nash_md", "prm", "xpo"), "1.14"),
    "minillm": "1.15",
    "ssd": "1.16",
}
"""Modules of trl.experimental, by the release that no longer has them: the folders of trl 0.29.0 to
1.16.0."""
_NEVER: Final[Mapping[str, str]] = {
    "trl.DataCollatorForLanguageModeling": "import it from trl.trainer.sft_trainer"
}
"""Names that no release has in its root module: trl 0.18.2 to 1.16.0 __init__.py."""
_EXPERIMENTAL: Final = "trl.experimental."


@rule(
    "error",
    "parse",
    consumers=("trl", "transformers", "peft"),
    reads=tuple(f"{kind}:*" for kind in _KINDS),
)
def name_of_another_release(run: LintContext) -> Iterator[Finding]:
    """A script imports a name that its package's release does not have in that module."""
    for document in scripts_of(run):
        for origin, node in imports_of(document.name, document.text):
            gone = _of_origin(origin)
            if gone is None or not is_checked(run, gone.since) or _is_older(run, gone.since):
                continue
            place = Place(document, str(node.value), node)
            module = origin.rpartition(".")[0]
            is_module_gone = origin.startswith(_EXPERIMENTAL)
            yield Finding(
                f"trl has no module `{module}`"
                if is_module_gone
                else f"`{module}` has no `{node.value}`",
                (place.key_label("ImportError"),),
                _last(run, gone.since),
                gone.help,
                severity=_severity(run, gone.since),
            )


def _last(run: LintContext, since: str) -> tuple[str, ...]:
    """From which release on a name is gone, unless the run's own release tells it."""
    is_told = not since or severity(run, since) is None
    return () if is_told else (f"gone from {since.replace('>=', ' ')} on",)


def _of_origin(origin: str) -> Gone | None:
    package, name = origin.partition(".")[0], origin.rpartition(".")[2]
    if origin in _NEVER:
        return Gone(frozenset({name}), "", _NEVER[origin])
    if origin.startswith(_EXPERIMENTAL):
        last = _HOMES.get(origin.split(".")[2])
        if last is None:
            return None
        help_ = f"pin trl<{last}: later releases do not have the module"
        return Gone(frozenset({name}), f"trl>={last}", help_)
    return next((each for each in GONE.get(package, ()) if name in each.names), None)


_BUILT_IN: Final = (
    *("attn_implementation", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("classifier_dropout", "activation_dropout", "resid_pdrop", "embd_pdrop"),
    *("num_experts_per_tok", "router_aux_loss_coef", "rope_scaling"),
)
"""Fields of a config that the models' classes read while they are built, and never after: of 530
files models/*/modeling_*.py of transformers 5.23.0, every method but `__init__` and `_init_weights`
was searched. Nothing reads attn_implementation: it is `_attn_implementation` there."""


@rule("warning", "silent", consumers=("transformers",), reads=("model:*",))
def config_set_too_late(run: LintContext) -> Iterator[Finding]:
    """A script sets a value that the model was built with after it has loaded the model."""
    for document in scripts_of(run):
        calls = calls_of(document.name, document.text)
        for call in () if calls is None else calls.found:
            if call.name != "from_pretrained" or call.package != "transformers" or calls is None:
                continue
            for key in _BUILT_IN:
                for node in calls.set_of(call, "config", key):
                    yield Finding(
                        f"setting config.{key} after the model is loaded has no effect",
                        (Place(document, f"config.{key}", node).key_label("read by nothing"),),
                        ("from_pretrained builds the layers by the config that it has read",),
                        f"give {key} to from_pretrained",
                    )
