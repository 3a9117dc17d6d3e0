"""Settings of TRL that nothing reads or that exclude each other."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.conditions import Need, lacking, told, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.evaluation import never_evaluates
from tunec.compiler.lints.facts.trl import real, whole
from tunec.compiler.lints.place import Place, also
from tunec.compiler.lints.rule import Finding, rule

_SYNC: Final = (
    Need("ref_model_mixup_alpha", ("sync_ref_model",), "the reference stays as it is"),
    Need("ref_model_sync_steps", ("sync_ref_model",), "the reference stays as it is"),
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
fields that PPOTrainer.__init__ writes over."""
_ENGINES: Final = (
    *(
        Need(f"{key} & vllm_mode=colocate & use_vllm", ("vllm_mode=server",), "no server is asked")
        for key in _SERVER
    ),
    *(
        Need(f"{key} & vllm_mode=server & use_vllm", ("vllm_mode=colocate",), "the server has it")
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
        Need("precompute_ref_batch_size", ("precompute_ref_log_probs",), "it is done on the fly"),
        Need("discopop_tau", ("loss_type~discopop",), "it is a number of that loss"),
    ),
    "grpo": (*_SYNC, *_ENGINES),
    "rloo": (*_SYNC, *_ENGINES),
}


@rule(
    "trl-option-unread",
    "warning",
    "silent",
    consumers=("trl",),
    sources=(
        (
            "trl 0.17.0 to 1.16.0 trainer/sft_trainer.py: packing_strategy only under packing, "
            "packing only in `_prepare_dataset`; dpo_trainer.py: SyncRefModelCallback only under "
            "sync_ref_model, precompute_ref_batch_size only where log-probabilities are computed "
            "beforehand; grpo_trainer.py, generation/vllm_generation.py: keys of the server and of "
            "the colocated engine"
        ),
    ),
)
def trl_option_unread(run: LintContext) -> Iterator[Finding]:
    """An option of TRL beside which nothing reads it."""
    for document in run.of("sft"):
        packing = where(document, "packing")
        skipped = document.get("dataset_kwargs.skip_prepare_dataset") or document.get(
            "dataset_kwargs"
        )
        if packing is not None and skipped is not None and _skips(skipped.value):
            yield Finding(
                "packing does nothing beside skip_prepare_dataset",
                (packing.label("not read"), skipped.label("", primary=False)),
                ("samples are packed where they are prepared: they are padded one by one",),
                "remove one of the two",
            )
    for document in run.of("ppo"):
        yield from _counted(run, document)
    for document in run.of("grpo", "rloo"):
        yield from _by_default(run, document)
    for document in run.of(*_NEEDS):
        for need in _NEEDS[document.kind] if not document.is_view else ():
            found = lacking(run, document, need)
            if found is None:
                continue
            at, beside = found
            yield Finding(
                f"{at.path} does nothing without {told(need.others[0])}",
                (at.label("not read"), *also(beside)),
                (need.why,),
                f"write {told(need.others[0])}, or remove it",
            )


def _by_default(run: LintContext, document: Document) -> Iterator[Finding]:
    """The engine that nothing is said of: a server's until trl 1, a colocated one since."""
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
                (f"vllm_mode is {mode} where nothing is said, in {_words(is_late=is_late)}",),
                f"write vllm_mode: {other}",
            )


def _words(*, is_late: bool | None) -> str:
    return "trl before 1.0" if is_late is False else "trl 1.0 and later"


def _counted(run: LintContext, document: Document) -> Iterator[Finding]:
    """Sizes of PPO that follow from others, whatever is written."""
    if document.is_view or run.runs("trl<0.12") is True:
        return
    for key in _COUNTED:
        at = document.get(key)
        if at is not None and at.value is not None:
            yield Finding(
                f"{key} of PPO is counted by the trainer, and what is written is lost",
                (at.label("written over"),),
                ("num_mini_batches divides the samples of all devices",),
                "write per_device_train_batch_size and num_mini_batches",
            )


def _skips(value: object) -> bool:
    """True, or the JSON of a flag that says so."""
    if isinstance(value, str):
        return "skip_prepare_dataset" in value and "true" in value.lower()
    return value is True


_BATCH: Final = "per_device_train_batch_size"
_GROUPS: Final = {"rloo": 2}
"""Answers to a prompt where nothing is said: 8 in GRPO (trl 1.16.0 rloo_config.py: 2)."""
_DIVERGENT: Final = frozenset(
    {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}
)


@rule(
    "trl-pair-refused",
    "error",
    "init",
    consumers=("trl",),
    sources=(
        (
            "trl 1.16.0 trainer/grpo_config.py `__post_init__`: log_completions_hub_repo is set, "
            "but log_completions is False; auto_find_batch_size is not supported by GRPO; must be "
            "divisible by the global batch size; The global eval batch size; must be less than; "
            "grpo_trainer.py, dpo_trainer.py `__init__`: sync_ref_model=True while using a PEFT "
            "model; dpo_trainer.py: is only supported for the following loss types"
        ),
    ),
)
def trl_pair_refused(run: LintContext) -> Iterator[Finding]:
    """Two settings that a trainer of TRL does not take together."""
    for document in run.of("grpo", "rloo", "dpo", "kto"):
        if document.is_view:
            continue
        yield from _synced(run, document)
        if document.kind == "dpo":
            yield from _of_dpo(run, document)
        elif document.kind in ("grpo", "rloo"):
            yield from _of_grpo(run, document)


def _synced(run: LintContext, document: Document) -> Iterator[Finding]:
    """A reference of its own is needed that can be moved."""
    sync, adapter = document.get("sync_ref_model"), document.get("use_peft")
    if sync is None or sync.value is not True:
        return
    if adapter is not None and adapter.value is True:
        yield _pair(sync, adapter, "with an adapter the reference is the base itself")
    beta = document.get("beta")
    if document.kind not in ("grpo", "rloo"):
        return
    why = "without a penalty there is no reference"
    if beta is not None and real(beta.value) == 0:
        yield _pair(sync, beta, why)
    elif beta is None and run.effective(document.kind, "beta").value == 0:
        yield Finding(
            f"sync_ref_model cannot stand where beta is 0, as in {run.release('trl')}",
            (sync.label("refused"),),
            (why,),
            "write beta, such as 0.04, or turn it off",
            severity="warning",
        )


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
        yield _pair(kind, loss, "the term that cancels between pairs does not here")
    weighting = document.get("use_weighting")
    is_on = weighting is not None and weighting.value is True
    if weighting is not None and loss is not None and is_on and named & {"aot", "aot_unpaired"}:
        yield _pair(weighting, loss, "that loss sorts the samples")


def _of_grpo(run: LintContext, document: Document) -> Iterator[Finding]:
    hub, log = document.get("log_completions_hub_repo"), document.get("log_completions")
    if hub is not None and hub.value and (log is None or log.value is not True):
        yield Finding(
            "log_completions_hub_repo is refused without log_completions",
            (hub.label("refused alone"), *also(log)),
            (),
            "write log_completions: true",
        )
    find = document.get("auto_find_batch_size")
    if find is not None and find.value is True and run.runs("trl>=1") is not False:
        yield Finding(
            f"auto_find_batch_size is refused by {document.kind.upper()}",
            (find.label("refused"),),
            ("a smaller batch would not hold whole groups",),
            f"remove it, and lower {_BATCH}",
            severity=None if run.runs("trl>=1") else "warning",
        )
    low, high = (document.get(f"vllm_importance_sampling_clip_{end}") for end in ("min", "max"))
    least, most = real(low.value) if low else None, real(high.value) if high else None
    is_crossed = least is not None and most is not None and least >= most
    if low is not None and high is not None and is_crossed:
        yield _pair(low, high, "the smallest weight has to be below the largest")
    yield from _unbounded(run, document)
    yield from _batches(run, document)


def _unbounded(run: LintContext, document: Document) -> Iterator[Finding]:
    """Weights that are cut at a bound, and no bound."""
    mode = document.get("vllm_importance_sampling_mode")
    low, high = (document.get(f"vllm_importance_sampling_clip_{end}") for end in ("min", "max"))
    is_cut = mode is not None and str(mode.value).endswith("_truncate")
    is_open = high is not None and high.value is None and (low is None or low.value is None)
    if mode is not None and high is not None and is_cut and is_open and run.runs("trl>=1.15"):
        yield _pair(mode, high, "a truncated weight needs a bound")


def _batches(run: LintContext, document: Document) -> Iterator[Finding]:
    world = run.data_parallel
    if world:
        yield from _generation(document, world)
        if not never_evaluates(document):
            yield from _evaluation(document, world)


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


def _evaluation(document: Document, world: int) -> Iterator[Finding]:
    batch, at = _micro(document, "per_device_eval_batch_size")
    key = "num_generations_eval" if document.get("num_generations_eval") else "num_generations"
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
    )


def _micro(document: Document, key: str) -> tuple[int | None, Place | None]:
    at = document.get(key)
    if at is None:
        return (None if key in document.unknown else 8), None
    return whole(at.value), at


def _pair(at: Place, other: Place, why: str) -> Finding:
    return Finding(
        f"{at.path} cannot stand beside {other.path} {other.value}",
        (at.label("refused"), other.label("", primary=False)),
        (why,),
        "turn one of the two off",
    )
