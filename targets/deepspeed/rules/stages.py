"""Rules about keys of one ZeRO stage that are used at another."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tunec.compiler.consumers.schemas import ds_config_defaults
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.known_keys import DEEPSPEED_RELEASES
from tunec.compiler.lints.facts.launch import is_counted_anew
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.sharding import STAGE, said_in, stage_of, ungathered, zero_keys
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule

legacy_stage_1 = rows(
    "legacy-stage-1",
    "error",
    "init",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:zero_optimization.legacy_stage1=true",
            "legacy_stage1 requests an implementation that DeepSpeed no longer has",
            label="refused",
            help="remove it",
            mend=Mend("safe", remove=True),
            effective=("deepspeed:zero_optimization.stage=1|2|3",),
        ),
    ),
)


_STAGE_2_KEYS: Final = (
    "allgather_partitions",
    "allgather_bucket_size",
    "round_robin_gradients",
    "use_multi_rank_bucket_allreduce",
    "ignore_unused_parameters",
    "parameter_alignment",
)


@rule("note", "silent", consumers=("deepspeed",), reads=zero_keys(*_STAGE_2_KEYS))
def stage_2_keys_at_stage_3(run: LintContext) -> Iterator[Finding]:
    """At stage 3 the file has keys that only stages 1 and 2 read."""
    stage = stage_of(run)
    said = list(said_in(run, _STAGE_2_KEYS))
    if stage.value != 3 or not said:
        return
    names = [each.path.rpartition(".")[2] for each in said]
    yield Finding(
        f"{joined(names, 'and')} do{'es' * (len(names) == 1)} nothing at ZeRO stage 3",
        (
            *(each.key_label("not read", primary=each is said[0]) for each in said),
            *also(stage.place),
        ),
        ("stage 3 gathers parameters one by one: stage3_prefetch_bucket_size says how far ahead",),
        "remove them",
        Fix((said[0].removed(),), "safe") if len(said) == 1 else None,
    )


_STAGE_3_KEYS: Final = (
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
    "stage3_module_granularity_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "gather_16bit_weights_on_model_save",
    "sub_group_size",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
    "offload_optimizer.super_offload",
)
_NOTHING: Final = (False, None, "auto")
_PROMISING: Final = ("zero_hpz", "zero_quantized", "offload_optimizer.super_offload")
"""Prefixes of the keys that save time or memory; without stage 3 the other keys lose nothing."""


@rule("warning", "silent", consumers=("deepspeed",), reads=zero_keys(*_STAGE_3_KEYS))
def stage_3_keys_below_stage_3(run: LintContext) -> Iterator[Finding]:
    """Below stage 3 the file has keys that only stage 3 reads."""
    stage = stage_of(run)
    if stage.value not in (0, 1, 2) or not stage.is_written:
        return
    said = [each for each in said_in(run, _STAGE_3_KEYS) if each.value not in _NOTHING]
    said = [
        each for each in said if not each.path.endswith("hpz_partition_size") or each.value != 1
    ]
    if not said:
        return
    names = ", ".join(each.path.rpartition(".")[2] for each in said)
    is_own = not any(each.document.kind == "accelerate" for each in said)
    is_missed = any(
        each.path.partition("zero_optimization.")[2].startswith(_PROMISING) for each in said
    )
    yield Finding(
        f"{names} only has an effect at ZeRO stage 3, and the stage is {stage.value}",
        (
            *(each.key_label("not read", primary=each is said[0]) for each in said),
            *also(stage.place),
        ),
        ("stages 0 to 2 keep every parameter whole on each device",),
        "use stage 3 if the parameters are to be sharded; otherwise remove them",
        Fix((said[0].removed(),), "safe") if is_own and len(said) == 1 else None,
        severity=None if is_missed else "note",
    )


@rule("warning", "slow", consumers=("deepspeed",), reads=STAGE, hardware=True)
def zero_of_one_process(run: LintContext) -> Iterator[Finding]:
    """ZeRO 2 or 3 runs with a single process and without offload, so it shards nothing."""
    stage, world = stage_of(run), run.world
    if stage.place is None or stage.value not in (2, 3) or world is None or world.value != 1:
        return
    if run.of("simpletuner"):
        return  # its number of processes may come from its environment
    devices = (
        run.effective("deepspeed", f"zero_optimization.{each}.device").value
        for each in ("offload_optimizer", "offload_param")
    )
    cluster, place = run.environment.cluster, run.place(world)
    is_said = world.rank in (Rank.OBSERVED, Rank.PIN) or (
        cluster is not None and cluster.device_count == 1
    )
    if any(each not in (None, "none") for each in devices) or not is_said:
        return
    yield Finding(
        f"ZeRO stage {stage.value} with one process shards nothing",
        (stage.place.label("no memory is saved"), *also(place)),
        (
            "states, gradients and parameters are divided by the number of processes, which is 1",
            "buckets and gathers cost time and memory all the same",
        ),
        "offload the optimizer, start a process for each device, or leave DeepSpeed out",
        severity="note" if is_counted_anew(run, place) or _is_a_trial_or_open(place) else None,
    )


_OF_A_TRIAL: Final = re.compile(r"(?<![a-z])(?:tests?|debug)(?![a-z])")


_TO_BE_SET: Final = re.compile(r"(?m)^[ \t]*#.*--num_gpus[= ]")


def _is_a_trial_or_open(place: Place | None) -> bool:
    """Whether the script is for a trial, or leaves the number to its user in a comment."""
    if place is None:
        return False
    is_trial = _OF_A_TRIAL.search(PurePosixPath(place.document.name).name) is not None
    return is_trial or _TO_BE_SET.search(place.document.text) is not None


zero_stage_left_out = rows(
    "zero-stage-left-out",
    "error",
    "silent",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:zero_optimization{}",
            "zero_optimization has no stage, so it is 0: nothing is sharded",
            label="no stage in here",
            why="the other keys of the block are read by stages 1 to 3",
            help="write the stage",
            beside=("no zero_optimization.stage",),
            at_key=True,
            files_only=True,
        ),
    ),
)


_MOVED_KEYS: Final = ("gradient_clipping", "bf16.check_grad_overflow")


@rule("warning", "silent", consumers=("deepspeed",), reads=("deepspeed:*",))
def default_moved(run: LintContext) -> Iterator[Finding]:
    """A key is missing whose default differs between releases."""
    documents = run.of("deepspeed") if run.deepspeed_reader == "plain" else ()
    if not documents or run.release("deepspeed").is_named:
        return
    for document in documents:
        for key in _MOVED_KEYS:
            if not document.is_view and document.get(key) is None and _matters(document, key):
                values = _values(key)
                if len(set(values.values())) > 1:
                    yield _moved(document, key, values)


def _matters(document: Document, key: str) -> bool:
    holder = key.rpartition(".")[0]
    return not holder or document.get(holder) is not None


def _values(key: str) -> Mapping[str, Any]:
    every = ((minor, ds_config_defaults(minor)) for minor in DEEPSPEED_RELEASES)
    return {minor: defaults[key] for minor, defaults in every if key in defaults}


def _moved(document: Document, key: str, values: Mapping[str, Any]) -> Finding:
    place = next(iter(document.found.values()))
    said = ", ".join(f"{value} in {minor}" for minor, value in values.items())
    return Finding(
        f"`{key}` is left out, and its default differs between releases",
        (place.key_label("in this file"),),
        (f"when absent, it is {said}",),
        f"write {key}, or name the release with --software deepspeed=VERSION",
    )


def _by_llava(run: LintContext) -> bool:
    """Whether LLaVA's script, or a derivative, trains LoRA: it gathers the adapter itself."""
    return any(str(at.value).lower() == "true" for at in run.each("trainer", "lora_enable"))


@rule("warning", "save", consumers=("deepspeed", "transformers"), reads=STAGE)
def weights_not_gathered_on_save(run: LintContext) -> Iterator[Finding]:
    """Checkpoints at stage 3 contain no weights that other programs can load."""
    if has_adapter(run) or _by_llava(run):
        return
    found = ungathered(
        run,
        "checkpoints of stage 3 hold shards only: the 16-bit weights are not gathered on save",
        "weights stay in shards",
        "zero_to_fp32.py recovers the weights from the shards, from_pretrained cannot",
    )
    if found is not None:
        yield found
