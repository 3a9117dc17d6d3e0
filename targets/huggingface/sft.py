"""Rows of TRL's ScriptArguments and SFTConfig, and sft.yaml, the whole run for `trl sft`."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, File, Json, constant, derived, fixed, same
from tunec.schemas.frozen import replace
from tunec.targets.answers import UNSAID
from tunec.targets.huggingface.arithmetic import recomputes
from tunec.targets.huggingface.card_file import card_of
from tunec.targets.huggingface.datasets import NOT_LOADED, data_of
from tunec.targets.huggingface.methods import (
    TRL_CHECKPOINTING,
    TRL_PRECISION,
    method_of,
    moving_activations,
)
from tunec.targets.huggingface.model import (
    ADAPTER,
    MODEL,
    PLAIN_LORA,
    QUANTIZATION,
    WIDENING,
    trust,
)
from tunec.targets.huggingface.packages import TRL
from tunec.targets.huggingface.schedule import (
    EVALUATION,
    EVALUATION_AS_IT_LOGS,
    LENGTH,
    LOGGING,
    SAVING,
    TRL_LOG_STEPS,
    WARMUP,
)
from tunec.targets.huggingface.training import (
    BATCH,
    OPTIMIZER,
    RUNTIME,
    TRL_LEARNING_RATE,
    write_liger,
)
from tunec.targets.rows import has_images, has_text_alone

_CONFIG = "trl 0.9.6 to 1.16.0 trainer/sft_config.py `SFTConfig`"


def _length(
    key: str, since: str | None, until: str | None, absent: tuple[tuple[str, Any], ...]
) -> tuple[Entry, Entry]:
    """The rows for the bound on tokens.

    Image tokens count too, and a cut in them breaks a sample.
    """
    return (
        replace(
            same(
                key,
                "data.sequence",
                f"{_CONFIG}: max_seq_length until 0.15, max_length from 0.16",
                since=since,
                until=until,
                when=has_text_alone,
                package=TRL,
            ),
            absent=absent,
        ),
        derived(
            key,
            lambda plan: plan.data.sequence + plan.data.image_tokens,
            _CONFIG,
            since=since,
            until=until,
            when=has_images,
            package=TRL,
        ),
    )


_LONG_512 = {"data.sequence": 512}
_LONG = {"data.sequence": 1024}
"""The default if the key is absent; in 0.9 to 0.14 the tokenizer decides
(trainer/sft_trainer.py)."""

_CHATS: Final = "assistant_only_loss"
_PROMPTS: Final = "completion_only_loss"


def _write_loss_on(plan: Plan) -> Mapping[str, Json]:
    """Answers are those of an assistant, or completions; all tokens, those of prompts too."""
    said = plan.data.loss_on
    if said == "answers":
        return {_PROMPTS if plan.data.format == "prompt-completion" else _CHATS: True}
    return {} if said is None else {_PROMPTS: False}


def _read_loss_on(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = (found.get(_CHATS), found.get(_PROMPTS))
    if True in said:
        return {"data.loss_on": "answers"}
    return {"data.loss_on": "all"} if False in said else {}


_LOSS_ON: Final = Entry(
    (_CHATS, _PROMPTS),
    ("data.loss_on",),
    _write_loss_on,
    _read_loss_on,
    f"{_CONFIG}; trainer/sft_trainer.py `SFTTrainer._prepare_dataset`",
    since="0.19",
    absent=UNSAID,
    package=TRL,
    yields=True,
)

SAMPLES = (
    *_length("max_seq_length", None, "0.16", (("0.8", _LONG_512), ("0.9", {}), ("0.15", _LONG))),
    *_length("max_length", "0.16", None, ((ALWAYS, _LONG),)),
    _LOSS_ON,
    same("packing", "data.packing", _CONFIG, default=False, package=TRL),
    derived(
        "pad_to_multiple_of",
        lambda plan: plan.parallel.sequence,
        "deepspeed 0.19.8 ulysses_sp.py `UlyssesSPDataLoaderAdapter.refill`: a batch whose length "
        "does not divide by the ranks of a sequence is refused",
        since="1.16",
        when=lambda plan: plan.parallel.sequence > 1,
        package=TRL,
    ),
)


# ── loss ─────────────────────────────────────────────────────────────────────────────────────────

_PIECES = "trl 1.4.0 to 1.14.2 trainer/sft_config.py `loss_type`: chunked_nll the default from 1.7"
_ONLY_PIECES = "trl 1.15.0 to 1.16.0 trainer/utils.py `add_fused_lm_head`, for every model"
_FUSED = {"loss.path": "fused"}
_FULL = {"loss.path": "full"}


def _liger(key: str, since: str, until: str) -> Entry:
    return Entry(
        (key,),
        ("loss.path",),
        lambda plan: {key: True} if plan.loss.path == "fused" else {},
        lambda found: _FUSED if found[key] is True else _FULL,
        "trl 0.10.1 to 0.15.2 trainer/sft_config.py `use_liger`, then transformers' own key",
        since=since,
        until=until,
        absent=((ALWAYS, _FULL),),
        package=TRL,
    )


def _write_path(plan: Plan) -> Mapping[str, Any]:
    return {
        "loss_type": "chunked_nll" if plan.loss.path == "chunked" else "nll",
        **write_liger(plan),
    }


def _read_path(found: Mapping[str, Any]) -> Mapping[str, Any]:
    word = found.get("loss_type")
    if word == "chunked_nll":
        return {"loss.path": "chunked"}
    if found.get("use_liger_kernel") is True:
        return _FUSED
    return _FULL if word == "nll" else {}


def _read_loss(found: Mapping[str, Any]) -> Mapping[str, Any]:
    word = str(found["loss_type"]).removeprefix("chunked_")
    return {"objective.loss": word} if word in ("nll", "dft") else {}


def _in_pieces(plan: Plan) -> bool:
    return plan.loss.path != "full"


IN_PIECES = fixed("loss.path", "chunked", _ONLY_PIECES, since="1.15", when=_in_pieces, package=TRL)
"""The loss from 1.15 on. A file beside the Trainer's arguments may belong to a plan that computes
all logits at once, for which this row does not hold."""
LOSS = (
    fixed(
        "loss.path", "full", "trl 0.8.6 to 0.9.6 trainer/sft_config.py", until="0.10", package=TRL
    ),
    _liger("use_liger", "0.10", "0.16"),
    _liger("use_liger_kernel", "0.16", "1.4"),
    constant("loss_type", "nll", f"{_CONFIG}, from 0.23", since="0.23", until="1.4", package=TRL),
    Entry(
        ("loss_type", "use_liger_kernel"),
        ("loss.path",),
        _write_path,
        _read_path,
        _PIECES,
        since="1.4",
        until="1.15",
        absent=((ALWAYS, _FULL), ("1.7", {"loss.path": "chunked"})),
        package=TRL,
    ),
    constant("loss_type", "nll", _ONLY_PIECES, since="1.15", package=TRL),
    IN_PIECES,
    Entry(
        ("loss_type",),
        ("objective.loss",),
        lambda _: {},
        _read_loss,
        f"{_CONFIG}: it can be dft from 0.23",
        absent=((ALWAYS, {"objective.loss": "nll"}),),
        package=TRL,
    ),
    fixed("objective.kind", "sft", "trl 0.8.6 to 1.16.0 scripts/sft.py", package=TRL),
)

_REENTRANT = derived(
    "gradient_checkpointing_use_reentrant",
    lambda plan: plan.activation_checkpointing.reentrant,
    "trl 0.8.6 to 0.26.2 `ScriptArguments`: in 0.8 its parser overwrites "
    "gradient_checkpointing_kwargs",
    until="0.27",
    when=recomputes,
    package=TRL,
)
OFFLOADING = moving_activations(
    "0.18", "trl 0.18.2 to 1.16.0 trainer/sft_config.py `SFTConfig.activation_offloading`"
)
_WHOLE = fixed("adapter.frozen", (), "trl 0.8.6 to 1.16.0: no key freezes a part", package=TRL)


def _fits_script(plan: Plan) -> bool:
    """Whether `trl sft` can train the plan: SFT of AutoModelForCausalLM or a model with images.

    The script has no metric, and its trainer generates nothing.
    """
    if plan.objective.kind != "sft" or plan.evaluation.predictions != "loss":
        return False
    return plan.model.kind in ("causal-lm", "vision-language")


def _is_sft(document: Json) -> bool:
    return method_of(document) == "sft"


DATA = data_of("huggingface")

SFT = File(
    name="sft.yaml",
    format="yaml",
    entries=(
        *MODEL,
        *WIDENING,
        trust(until=None),
        *QUANTIZATION,
        *ADAPTER,
        *PLAIN_LORA,
        *DATA,
        *NOT_LOADED,
        *SAMPLES,
        *LOSS,
        *BATCH,
        TRL_LEARNING_RATE,
        *OPTIMIZER,
        *LENGTH,
        *WARMUP,
        *TRL_PRECISION,
        *TRL_CHECKPOINTING,
        *OFFLOADING,
        _REENTRANT,
        *LOGGING,
        TRL_LOG_STEPS,
        *SAVING,
        *EVALUATION,
        EVALUATION_AS_IT_LOGS,
        *RUNTIME,
        _WHOLE,
    ),
    names=("deepspeed",),
    recognise=_is_sft,
    when=_fits_script,
    is_optional=True,
)

SFT_CARD = card_of("huggingface", _fits_script, SFT.name)
