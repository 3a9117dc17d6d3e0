"""Rows of the files for `trl sft`, `trl dpo` and `trl grpo`, which differ only in the samples."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, derived, fixed, in_every_plan, same
from tunec.schemas.frozen import replace
from tunec.schemas.models.chat_templates import turn_end
from tunec.targets.chat_template import template_row
from tunec.targets.huggingface.datasets import NOT_LOADED, data_of
from tunec.targets.huggingface.methods import moving_activations
from tunec.targets.huggingface.model import MODEL, QUANTIZATION, WIDENING, trust, widening
from tunec.targets.huggingface.packages import TRL
from tunec.targets.huggingface.sft import DATA, IN_PIECES, LOSS, OFFLOADING, SAMPLES, SFT
from tunec.targets.huggingface.training import TRL_LEARNING_RATE
from tunec.targets.rows import has_adapter
from tunec.targets.trl.model_loading import LOADING, by_keys

_DPO: Final = "trl 0.9.6 to 1.16.0 trainer/dpo_config.py `DPOConfig`, before it DpoScriptArguments"
_GRPO: Final = "trl 0.14.0 to 1.16.0 trainer/grpo_config.py `GRPOConfig`"
_RATE: Final = "optimizer.learning_rate"
_SEQUENCE: Final = "data.sequence"


def transformers_row(entry: Entry) -> Entry:
    """A row whose releases are those of transformers, in a target whose own package is trl."""
    return entry if entry.package else replace(entry, package="transformers")


def _strict(entry: Entry) -> Entry:
    """The row of the loss, in every plan: `trl sft` cannot count another loss."""
    return replace(entry, when=in_every_plan) if entry is IN_PIECES else entry


def _listed(entry: Entry) -> tuple[Entry, ...]:
    """A pattern as a list of one, which the class unpacks: its schema only allows lists.

    trl 0.9.6 to 1.16.0 trainer/model_config.py `ModelConfig.__post_init__`.
    """
    if entry.keys != (_TARGETS,):
        return (entry,)

    def write(plan: Plan) -> Mapping[str, Any]:
        said = entry.write(plan).get(_TARGETS)
        return {_TARGETS: [said] if isinstance(said, str) else said}

    return replace(entry, until="0.9"), replace(entry, since="0.9", write=write)


_TARGETS: Final = "lora_target_modules"
_DATA: Final = dict(zip(map(id, DATA), data_of("trl"), strict=True))
_NOT_LOADED: Final = frozenset(map(id, NOT_LOADED))
_ENTRIES: Final = tuple(
    _DATA.get(id(each), each) for each in SFT.entries if id(each) not in _NOT_LOADED
)
"""The rows for `trl sft`, with the data card in this target's folder."""
_SFT: Final = tuple(
    row for each in _ENTRIES for row in map(transformers_row, _listed(_strict(each)))
)
_OWN: Final = frozenset(
    {*map(id, (*SAMPLES, *LOSS, *OFFLOADING, *WIDENING)), id(TRL_LEARNING_RATE)}
)
SHARED: Final = tuple(
    row for each in _ENTRIES if id(each) not in _OWN for row in map(transformers_row, _listed(each))
)
"""Rows for data set, model, adapter and the Trainer's arguments."""


def trl_key(
    key: str,
    slot: str,
    source: str,
    absent: tuple[tuple[str, Any], ...] = (),
    *,
    since: str | None = None,
) -> Entry:
    """A row of TRL's own key, whose releases are those of TRL."""
    return same(key, slot, source, since=since, absent=absent, package=TRL)


def rate_of(source: str, absent: tuple[tuple[str, float], ...]) -> Entry:
    """The row of the learning rate, whose default each method has of its own."""
    return trl_key("learning_rate", _RATE, source, absent)


def nothing_packed(source: str) -> Entry:
    """A row for scripts that do not pack samples."""
    return fixed("data.packing", False, source, package=TRL)


def only_for(kind: str, since: str, why: str) -> tuple[Entry, Entry]:
    """The script's objective; before `since` no key expresses it, and a plan is refused."""
    slots = ("objective.kind",)
    nothing = Entry((), slots, lambda _: {}, lambda _: {}, why, until=since, package=TRL)
    return nothing, fixed("objective.kind", kind, why, since=since, package=TRL)


def _path(source: str) -> tuple[Entry, Entry]:
    """How log-probabilities are computed: from all logits, and from 1.15 on also in chunks."""

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        return {} if found["use_liger_kernel"] is True else {"loss.path": "full"}

    whole = Entry(
        ("use_liger_kernel",),
        ("loss.path",),
        lambda _: {},
        read,
        f"{source}; with Liger its own losses over answers run, which no plan has",
        until="1.15",
        absent=((ALWAYS, {"loss.path": "full"}),),
        package=TRL,
    )
    return whole, replace(IN_PIECES, when=in_every_plan)


# ── dpo ──────────────────────────────────────────────────────────────────────────────────────────

_DPO_LENGTH: Final = replace(
    trl_key("max_length", _SEQUENCE, f"{_DPO}: prompt and completion together"),
    absent=(("0.8", {_SEQUENCE: 512}), ("0.9", {}), ("0.14", {_SEQUENCE: 1024})),
)
_DPO_PROMPT: Final = derived(
    "max_prompt_length",
    lambda plan: max(plan.data.sequence // 2, 1),
    f"{_DPO}, until 0.28: absent it is 128, then 512; half of max_length, as TRL's own 512 of 1024",
    until="0.28",
    package=TRL,
)


def _pair_loss(*, several: bool) -> Entry:
    """The loss; from 0.20 on the key holds a list of losses."""

    def write(plan: Plan) -> Mapping[str, Any]:
        return {"loss_type": [plan.objective.loss] if several else plan.objective.loss}

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        said = found["loss_type"] if isinstance(found["loss_type"], list) else [found["loss_type"]]
        return {"objective.loss": said[0]} if len(said) == 1 and isinstance(said[0], str) else {}

    return Entry(
        ("loss_type",),
        ("objective.loss",),
        write,
        read,
        f"{_DPO}: one loss until 0.19, then a list",
        since="0.20" if several else "0.9",
        until=None if several else "0.20",
        absent=((ALWAYS, {"objective.loss": "sigmoid"}),),
        package=TRL,
    )


def _write_reference(plan: Plan) -> Mapping[str, Any]:
    """Write the key with `use_peft`, which decides the trainer's default."""
    before = plan.objective.reference == "precomputed"
    asked = {"precompute_ref_log_probs": True} if before else {}
    return {"use_peft": plan.adapter.kind == "lora", **asked}


def _read_reference(found: Mapping[str, Any]) -> Mapping[str, Any]:
    if found.get("precompute_ref_log_probs") is True:
        return {"objective.reference": "precomputed"}
    return {"objective.reference": "base" if found.get("use_peft") is True else "resident"}


_REFERENCE: Final = Entry(
    ("precompute_ref_log_probs", "use_peft"),
    ("objective.reference",),
    _write_reference,
    _read_reference,
    "trl 0.9.6 to 1.16.0 trainer/dpo_trainer.py: with adapters no second model is kept",
    since="0.9",
    absent=((ALWAYS, {"objective.reference": "resident"}),),
    package=TRL,
)


def _write_dropout(plan: Plan) -> Mapping[str, Any]:
    """Write the key that keeps dropout where there is some; absent, the trainer switches it off."""
    kept = {"disable_dropout": False} if plan.adapter.dropout else {}
    return {"lora_dropout": plan.adapter.dropout, **kept}


def _read_dropout(found: Mapping[str, Any]) -> Mapping[str, Any]:
    is_kept = found.get("disable_dropout") is False
    return {"adapter.dropout": found.get("lora_dropout", 0.05) if is_kept else 0.0}


DROPOUT: Final = Entry(
    ("lora_dropout", "disable_dropout"),
    ("adapter.dropout",),
    _write_dropout,
    _read_dropout,
    f"{_DPO}: disable_dropout, which the adapters' dropout is set to 0 by",
    absent=((ALWAYS, {"adapter.dropout": 0.0}),),
    when=has_adapter,
    package=TRL,
)


# ── grpo ─────────────────────────────────────────────────────────────────────────────────────────

_COMPLETION: Final = "generation.completion"
_PROMPT: Final = "generation.prompt"


def _read_lengths(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The lengths; the sequence is known only if prompt and completion are bounded."""
    names = {_PROMPT: "max_prompt_length", _COMPLETION: "max_completion_length"}
    said = {slot: found[key] for slot, key in names.items() if isinstance(found.get(key), int)}
    return {**said, _SEQUENCE: sum(said.values())} if len(said) == len(names) else said


_LENGTHS: Final = (
    Entry(
        ("max_prompt_length", "max_completion_length"),
        (_PROMPT, _COMPLETION, _SEQUENCE),
        lambda plan: {
            "max_prompt_length": plan.generation.prompt,
            "max_completion_length": plan.generation.completion,
        },
        _read_lengths,
        f"{_GRPO}: the prompt is bounded until 0.27 only",
        until="0.28",
        package=TRL,
    ),
    trl_key(
        "max_completion_length", _COMPLETION, _GRPO, (("0.28", 256), ("1.10", 512)), since="0.28"
    ),
)


def _write_engine(plan: Plan) -> Mapping[str, Any]:
    engine = plan.generation.engine
    if not engine.startswith("vllm"):
        return {}
    share = {_SHARE: plan.generation.device_share} if engine == "vllm_colocate" else {}
    return {"use_vllm": True, "vllm_mode": engine.removeprefix("vllm_"), **share}


def _read_engine(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine; the default mode depends on the release, and the share is unknown unless set."""
    if found.get("use_vllm") is not True:
        return _BY_TRANSFORMERS
    mode, share = found.get("vllm_mode"), found.get(_SHARE)
    if mode == "server":
        return {"generation.engine": "vllm_server", "generation.device_share": 0.0}
    if mode != "colocate":
        return {}
    said = {"generation.device_share": share} if isinstance(share, float) else {}
    return {"generation.engine": "vllm_colocate", **said}


_SHARE: Final = "vllm_gpu_memory_utilization"
_BY_TRANSFORMERS: Final = {"generation.engine": "transformers", "generation.device_share": 0.0}

_ANSWERS: Final = (
    trl_key("num_generations", "generation.samples", _GRPO, ((ALWAYS, 8),)),
    *_LENGTHS,
    trl_key("temperature", "generation.temperature", _GRPO, ((ALWAYS, 0.9), ("0.18", 1.0))),
    Entry(
        ("use_vllm", "vllm_mode", _SHARE),
        tuple(_BY_TRANSFORMERS),
        _write_engine,
        _read_engine,
        f"{_GRPO}: vllm_mode from 0.18",
        absent=((ALWAYS, _BY_TRANSFORMERS),),
        package=TRL,
    ),
)


_SLEEP: Final = "vllm_enable_sleep_mode"


def _sleeps_beside(plan: Plan) -> bool:
    return plan.generation.engine == "vllm_colocate"


_ANSWERS_IN_TURN: Final = replace(
    trl_key(
        _SLEEP,
        "generation.engine_sleeps",
        f"{_GRPO}: trl 0.23.1 to 1.16.0",
        ((ALWAYS, False),),
        since="0.23",
    ),
    write=lambda plan: {_SLEEP: True} if plan.generation.engine_sleeps else {},
    when=_sleeps_beside,
)


def _read_rewards(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rewards; a command line with one function has a word, a file has a list."""
    names = found["reward_funcs"]
    return {"objective.rewards": (names,) if isinstance(names, str) else tuple(names)}


_REWARDED: Final = (
    trl_key("beta", "objective.beta", _GRPO, ((ALWAYS, 0.04), ("0.19", 0.0))),
    trl_key(
        "loss_type", "objective.loss", _GRPO, (("0.17", "bnpo"), ("0.22", "dapo")), since="0.17"
    ),
    replace(
        trl_key(
            "reward_funcs",
            "objective.rewards",
            "trl 0.18.2 to 1.16.0 scripts/grpo.py `GRPOScriptArguments`",
            since="0.18",
        ),
        read=_read_rewards,
    ),
)


def _turn_end(plan: Plan) -> str | None:
    """The end token of conversations, at which the trained model has to stop."""
    is_own = plan.data.chat_template is None and plan.data.format is None
    return turn_end(plan.model.path) if is_own else None


SFT_ENTRIES: Final = (
    *_SFT,
    derived(
        "eos_token",
        _turn_end,
        "trl 0.17.0 to 1.16.0 trainer/sft_config.py `SFTConfig`: absent, the tokenizer's",
        since="0.17",
        package=TRL,
    ),
    template_row(
        "chat_template_path",
        "trl",
        "trl 0.19.1 to 1.16.0 trainer/sft_trainer.py `SFTTrainer.__init__`: a file of Jinja, or a "
        "model whose tokenizer has one",
        since="0.19",
        package=TRL,
    ),
)
READ_ENTRIES: Final = (
    *SHARED,
    rate_of("trl 0.8.6 to 1.16.0 trainer/kto_config.py, rloo_config.py", ()),
)
"""Rows that the files of further methods share with the written ones."""
DPO_ENTRIES: Final = (
    *(DROPOUT if each.keys == ("lora_dropout",) else each for each in SHARED),
    *widening("0.29"),
    rate_of(_DPO, ((ALWAYS, 5e-5), ("0.12", 1e-6))),
    _DPO_LENGTH,
    _DPO_PROMPT,
    nothing_packed(_DPO),
    *only_for("dpo", "0.9", f"{_DPO}: no config of its own before 0.9"),
    trl_key("beta", "objective.beta", _DPO, ((ALWAYS, 0.1),)),
    _pair_loss(several=False),
    _pair_loss(several=True),
    _REFERENCE,
    *_path(_DPO),
    *moving_activations("0.29", f"{_DPO}: trl 0.29.1 to 1.16.0 `activation_offloading`"),
)
_LOADED: Final = frozenset(
    key for each in (*MODEL, *QUANTIZATION, trust(until=None)) for key in each.keys
) - {"model_name_or_path"}
"""Keys of ModelConfig for loading the model."""


def loads(entry: Entry) -> bool:
    """Whether a row's keys say how the model is loaded."""
    return bool(_LOADED & {*entry.keys}) or entry.slots == ("quantization.storage",)


GRPO_ENTRIES: Final = (
    *(each for each in SHARED if not loads(each)),
    *by_keys(each for each in SHARED if loads(each)),
    *LOADING,
    *WIDENING,
    rate_of(_GRPO, ((ALWAYS, 1e-6),)),
    nothing_packed(_GRPO),
    *only_for(
        "grpo",
        "0.20",
        "trl 0.18.2 and 0.19.1 scripts/grpo.py `main` hands on `reward_model`, which nothing sets "
        "where rewards are functions; 0.20.0 hands on both",
    ),
    *_REWARDED,
    *_ANSWERS,
    _ANSWERS_IN_TURN,
    *_path(_GRPO),
    fixed(
        "activation_checkpointing.offload",
        value=False,
        source=f"{_GRPO}: it has no such key",
        package=TRL,
    ),
)
