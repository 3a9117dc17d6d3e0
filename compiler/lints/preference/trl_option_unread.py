"""An option of TRL beside which nothing reads it."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.conditions import Need, lacking, told, where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

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


def _check(run: Run) -> Iterator[Finding]:
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
                (at.label("not read"), *([beside.label("", primary=False)] if beside else [])),
                (need.why,),
                f"write {told(need.others[0])}, or remove it",
            )


def _by_default(run: Run, document: Document) -> Iterator[Finding]:
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


def _counted(run: Run, document: Document) -> Iterator[Finding]:
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


RULE = Rule(
    name="trl-option-unread",
    severity="warning",
    consequence="silent",
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
    check=_check,
)
