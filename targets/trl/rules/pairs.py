"""Settings of TRL that have no effect or that exclude each other."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.conditions import Need, in_words, key_of, lacking, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import never_evaluates, real, whole
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.compiler.lints.schemas import schemas

_SYNC: Final = (
    Need("ref_model_mixup_alpha", ("sync_ref_model",), "the reference is not updated"),
    Need("ref_model_sync_steps", ("sync_ref_model",), "the reference is not updated"),
)
_SERVER: Final = ("vllm_server_host", "vllm_server_port", "vllm_server_base_url")
_LOCAL: Final = (
    *("vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_enable_sleep_mode"),
    "vllm_max_model_length",
)
_COUNTED: Final = (
    *("batch_size", "mini_batch_size", "local_batch_size", "local_mini_batch_size"),
    *("micro_batch_size", "num_total_batches"),
)
"""trl 0.12.2 to 0.24.0 trainer/utils.py `OnPolicyConfig`, 1.9.2 experimental/ppo/ppo_config.py:
fields that PPOTrainer.__init__ overwrites."""
_ENGINES: Final = (
    *(
        Need(f"{key} & vllm_mode=colocate & use_vllm", ("vllm_mode=server",), "no server is used")
        for key in _SERVER
    ),
    *(
        Need(
            f"{key} & vllm_mode=server & use_vllm",
            ("vllm_mode=colocate",),
            "the server has its own settings",
        )
        for key in _LOCAL
    ),
)
_COLOCATED: Final = "trl>=1"
"""trl 0.19.1 to 0.29.0 trainer/grpo_config.py: vllm_mode server; 1.0.0 to 1.16.0: colocate."""
_NEEDS: Final[Mapping[str, tuple[Need, ...]]] = {
    "sft": (
        Need("packing_strategy", ("packing",), "nothing is packed"),
        *_SYNC,
        Need("eval_packing=true", ("eval_strategy!=no",), "nothing is evaluated"),
    ),
    "dpo": (
        *_SYNC,
        Need(
            "precompute_ref_batch_size",
            ("precompute_ref_log_probs",),
            "they are computed on the fly",
        ),
        Need("discopop_tau", ("loss_type~discopop",), "only that loss reads it"),
    ),
    "grpo": (*_SYNC, *_ENGINES),
    "rloo": (*_SYNC, *_ENGINES),
}
_UNREAD: Final = (
    "sft:packing",
    *keys("ppo", *_COUNTED),
    *keys("grpo|rloo", *_SERVER, *_LOCAL),
    *(f"{kind}:{key_of(each.condition)}" for kind, needs in _NEEDS.items() for each in needs),
)


@rule("warning", "silent", consumers=("trl",), reads=_UNREAD)
def trl_option_unread(run: LintContext) -> Iterator[Finding]:
    """An option of TRL that has no effect because of another setting."""
    for document in run.of("sft"):
        packing = where(document, "packing")
        skipped = document.get("dataset_kwargs.skip_prepare_dataset") or document.get(
            "dataset_kwargs"
        )
        if packing is not None and skipped is not None and _skips(skipped.value):
            yield Finding(
                "packing does nothing with skip_prepare_dataset",
                (packing.label("not read"), skipped.label("", primary=False)),
                ("packing is part of preparing the samples: without it each is padded",),
                "remove one of the two",
            )
    for document in run.of("ppo"):
        yield from _counted(run, document)
    for document in run.of("grpo", "rloo"):
        yield from _by_default(run, document)
    for document in run.of(*_NEEDS):
        for need in _NEEDS[document.kind] if not document.is_view else ():
            unmet = lacking(run, document, need)
            if unmet is None:
                continue
            at, beside = unmet
            yield Finding(
                f"{at.path} does nothing without {in_words(need.others[0])}",
                (at.label("not read"), *also(beside)),
                (need.why,),
                f"write {in_words(need.others[0])}, or remove it",
                severity="note" if _is_idle(run, at) else None,
            )


def _is_idle(run: LintContext, at: Place) -> bool:
    """Whether the option has its default, as if all are listed, or the repository reads it."""
    every = [each.get("properties", {}).get(at.path, {}) for each in schemas(run, at.document)]
    is_default = any("default" in each and each["default"] == at.value for each in every)
    return is_default or _is_read_here(run, at)


def _is_read_here(run: LintContext, at: Place) -> bool:
    """Whether the repository has its own trainer that reads the option."""
    return at.document.format != "python" and run.own.holds(f".{at.path}")


def _by_default(run: LintContext, document: Document) -> Iterator[Finding]:
    """The default mode of vLLM: a server until trl 1, colocated since."""
    engine, is_late = where(document, "use_vllm"), run.runs(_COLOCATED)
    if engine is None or document.get("vllm_mode") is not None or document.is_view:
        return
    if "vllm_mode" in document.unknown or run.runs("trl<0.18") is True:
        return  # before 0.18 there is no such key
    keys = _LOCAL if is_late is False else _SERVER
    mode, other = ("server", "colocate") if is_late is False else ("colocate", "server")
    for key in keys:
        at = document.get(key)
        if at is not None and at.value is not None:
            yield Finding(
                f"{key} does nothing without vllm_mode: {other}",
                (at.label("not read"), engine.label("", primary=False)),
                (f"vllm_mode is {mode} by default, in {_words(is_late=is_late)}",),
                f"write vllm_mode: {other}",
                severity="note" if _is_read_here(run, at) else None,
            )


def _words(*, is_late: bool | None) -> str:
    return "trl before 1.0" if is_late is False else "trl 1.0 and later"


def _counted(run: LintContext, document: Document) -> Iterator[Finding]:
    """Sizes of PPO that the trainer computes from others."""
    if document.is_view or run.runs("trl<0.12") is True:
        return
    for key in _COUNTED:
        at = document.get(key)
        if at is not None and at.value is not None:
            yield Finding(
                f"{key} of PPO is computed by the trainer: what is written has no effect",
                (at.label("overwritten"),),
                ("num_mini_batches divides the samples of all devices",),
                "write per_device_train_batch_size and num_mini_batches",
            )


def _skips(value: object) -> bool:
    """Whether the value is true, or the JSON of a flag that sets it."""
    if isinstance(value, str):
        return "skip_prepare_dataset" in value and "true" in value.lower()
    return value is True


_BATCH: Final = "per_device_train_batch_size"
_GROUPS: Final = {"rloo": 2}
"""Answers to a prompt by default, if it is not GRPO's 8 (trl 1.16.0 rloo_config.py: 2)."""
_DIVERGENT: Final = frozenset(
    {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}
)
_CLIP: Final = "vllm_importance_sampling_clip"


def _refused_pair(condition: str, other: str, why: str) -> Row:
    return Row(
        condition,
        "{0.path} cannot be combined with {1.path}: {1.value}",
        label="refused",
        why=why,
        help="remove {0.path}, or change {1.path}",
        beside=(other,),
        files_only=True,
    )


_NO_PENALTY: Final = "without a penalty there is no reference"
_REFUSED: Final = (
    _refused_pair(
        "dpo|kto|grpo|rloo:sync_ref_model=true",
        "use_peft=true",
        "with an adapter the reference is the base itself",
    ),
    _refused_pair("grpo|rloo:sync_ref_model=true", "beta=0|0.0", _NO_PENALTY),
    Row(
        "grpo:sync_ref_model=true",
        "sync_ref_model cannot be used where beta is 0, as it is by default",
        label="refused",
        why=_NO_PENALTY,
        help="write beta, such as 0.04, or turn it off",
        beside=("no beta",),
        effective=("grpo:beta=0|0.0",),
        files_only=True,
        severity="warning",
    ),
    Row(
        "grpo|rloo:log_completions_hub_repo",
        "log_completions_hub_repo requires log_completions",
        label="refused alone",
        help="write log_completions: true",
        beside=("no log_completions=true",),
        files_only=True,
    ),
    Row(
        "grpo|rloo:auto_find_batch_size=true",
        "auto_find_batch_size is refused by GRPO and RLOO",
        label="refused",
        why="a smaller batch would not hold whole groups",
        help=f"remove it, and lower {_BATCH}",
        since="trl>=1",
        files_only=True,
    ),
)
_UNBOUNDED: Final = (
    _refused_pair(
        "grpo|rloo:vllm_importance_sampling_mode=token_truncate|sequence_truncate",
        f"{_CLIP}_max=null & no {_CLIP}_min!=null",
        "a truncated weight needs a bound",
    ),
)
"""Truncation without a bound, which trl refuses since 1.15."""


@rule(
    "error",
    "init",
    consumers=("trl",),
    reads=(
        *reads_of((*_REFUSED, *_UNBOUNDED)),
        *keys("dpo", "f_divergence_type", "use_weighting"),
        *keys("grpo|rloo", f"{_CLIP}_min", "generation_batch_size"),
        *keys("grpo|rloo", "per_device_eval_batch_size", "num_generations", "num_generations_eval"),
    ),
)
def trl_pair_refused(run: LintContext) -> Iterator[Finding]:
    """Two settings that a trainer of TRL refuses together."""
    yield from found(_REFUSED, run)
    if run.runs("trl>=1.15"):
        yield from found(_UNBOUNDED, run)
    for document in run.of("dpo"):
        if not document.is_view:
            yield from _of_dpo(run, document)
    for document in run.of("grpo", "rloo"):
        if not document.is_view:
            yield from _clip(document)
            yield from _batches(run, document)


def _of_dpo(run: LintContext, document: Document) -> Iterator[Finding]:
    kind, loss = document.get("f_divergence_type"), document.get("loss_type")
    words = (
        loss.value
        if loss is not None and isinstance(loss.value, list)
        else [loss.value if loss is not None else "sigmoid"]
    )
    named = {str(each) for each in words}
    is_late = run.runs("trl>=1") is not False
    is_other = kind is not None and kind.value != "reverse_kl" and not named <= _DIVERGENT
    if kind is not None and loss is not None and is_late and is_other:
        yield _pair(kind, loss, "a term that cancels out for pairs does not in this loss")
    weighting = document.get("use_weighting")
    is_on = weighting is not None and weighting.value is True
    if weighting is not None and loss is not None and is_on and named & {"aot", "aot_unpaired"}:
        yield _pair(weighting, loss, "that loss sorts its samples")


def _clip(document: Document) -> Iterator[Finding]:
    low, high = (document.get(f"{_CLIP}_{end}") for end in ("min", "max"))
    least, most = real(low.value) if low else None, real(high.value) if high else None
    if low is None or high is None or least is None or most is None or least < most:
        return
    yield _pair(low, high, "the smallest weight has to be below the largest")


def _batches(run: LintContext, document: Document) -> Iterator[Finding]:
    world = run.data_parallel
    if world:
        yield from _generation(document, world)
        if not never_evaluates(document):
            yield from _evaluation(run, document, world)


def _generation(document: Document, world: int) -> Iterator[Finding]:
    given, (size, at) = document.get("generation_batch_size"), _micro(document, _BATCH)
    total = whole(given.value) if given is not None else None
    if given is None or not total or not size or total % (size * world) == 0:
        return
    if document.get("steps_per_generation") is not None:
        return  # refused for that
    yield Finding(
        f"generation_batch_size {total} is no multiple of the batch of {size * world}",
        (given.label("refused"), *also(at)),
        (f"{size} x {world} = {size * world}: samples a device x processes",),
        f"write {-(-total // (size * world)) * size * world}",
        sum=(Term("samples a device", size, ""), Term("processes", world, "")),
    )


_BY_TRAINING: Final = "trl<0.26.2"
"""trl 0.26.0 has num_generations_eval and checks by num_generations (huggingface/trl#4682)."""


def _evaluation(run: LintContext, document: Document, world: int) -> Iterator[Finding]:
    batch, at = _micro(document, "per_device_eval_batch_size")
    if at is None and run.own.decides("per_device_eval_batch_size", document, run.missing):
        return  # a class of the repository has the default, or the file of --config is not there
    own = document.get("num_generations_eval") and not run.runs(_BY_TRAINING)
    key = "num_generations_eval" if own else "num_generations"
    group_at = document.get(key)
    group = whole(group_at.value) if group_at is not None else _GROUPS.get(document.kind, 8)
    place = at or group_at
    if place is None or not batch or not group or (batch * world) % group == 0:
        return
    both = [each for each in (at, group_at) if each is not None]
    yield Finding(
        f"evaluation batch {batch * world} is no multiple of {key} {group}",
        tuple(each.label("", primary=each is place) for each in both),
        (f"{batch} x {world} = {batch * world}: samples a device x processes",),
        f"write per_device_eval_batch_size: {group}",
        sum=(Term("samples a device", batch, ""), Term("processes", world, "")),
        consequence="parse" if run.runs("trl>=0.18") else None,
    )


def _micro(document: Document, key: str) -> tuple[int | None, Place | None]:
    at = document.get(key)
    if at is None:
        return (None if key in document.unknown else 8), None
    return whole(at.value), at


def _pair(at: Place, other: Place, why: str) -> Finding:
    return Finding(
        f"{at.path} cannot be combined with {other.path}: {other.value}",
        (at.label("refused"), other.label("", primary=False)),
        (why,),
        f"remove {at.path}, or change {other.path}",
    )
