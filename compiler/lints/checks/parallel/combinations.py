"""Kinds of parallelism that exclude another setting."""

from collections.abc import Iterator

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.sharding import SECTION, shared_sequences
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule


@rule(
    "context-attention-not-sdpa",
    "error",
    "step",
    consumers=("transformers",),
    sources=(
        "transformers 4.57.6, 5.23.0 trainer.py `_prepare_context_parallel_inputs`: ValueError",
    ),
    reads=keys("trainer|model", "attn_implementation"),
)
def context_attention_not_sdpa(run: LintContext) -> Iterator[Finding]:
    """Ranks share the context of a model whose attention is not SDPA."""
    if run.runs("transformers<=4.51.3"):
        return  # whose Trainer shares no contexts
    own = run.said("trainer", "attn_implementation") or run.said("model", "attn_implementation")
    if own is None or not isinstance(own.value, str) or own.value == "sdpa":
        return
    for place in _widths(run):
        if is_whole(place.value) and place.value > 1:
            yield Finding(
                f"{place.value} ranks share the context, and the model attends by {own.value}",
                (own.label("refused"), place.label("", primary=False)),
                ("Context parallelism is supported only with SDPA attention",),
                "write attn_implementation: sdpa",
            )


def _widths(run: LintContext) -> Iterator[Place]:
    yield from run.each("accelerate", f"{SECTION}cp_size")
    for document in launches(run, "accelerate"):
        place = document.get("flags.parallelism_config_cp_size")
        if place is not None and document.get("flags.use_parallelism_config"):
            yield place


pipeline_under_zero_2 = rows(
    "pipeline-under-zero-2",
    "warning",
    "init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/pipe/engine.py `PipelineEngine.__init__`: ZeRO-2 "
        "and ZeRO-3 are incompatible with pipeline parallelism"
    ),
    rows=(
        Row(
            "deepspeed:pipeline{}",
            "a pipeline at ZeRO stage {1.value} is refused",
            label="for a PipelineModule",
            why=(
                "a pipeline sums gradients over micro batches before it reduces them",
                "a model that is no PipelineModule does not read this section",
            ),
            help="use stage 1, or remove pipeline",
            effective=("deepspeed:zero_optimization.stage=2|3",),
            at_key=True,
        ),
    ),
)


@rule(
    "sequence-attention-differs",
    "error",
    "init",
    consumers=("deepspeed>=0.18.2",),
    sources=(
        (
            "deepspeed 0.19.0, 0.19.8 runtime/sequence_parallel/ulysses_sp.py "
            "`register_with_transformers`: core_attn_implementation does not match; 0.18.9 "
            "compares nothing"
        ),
        "accelerate 1.13.0 to 1.15.0 commands/launch.py: sdpa where the key is absent",
    ),
    reads=keys("trainer|model", "attn_implementation"),
)
def sequence_attention_differs(run: LintContext) -> Iterator[Finding]:
    """The attention around which ranks share a sequence is not the one that the model runs."""
    own = run.said("trainer", "attn_implementation") or run.said("model", "attn_implementation")
    kernel = own.value if own is not None else None
    if own is None or not isinstance(kernel, str):
        return
    for place in shared_sequences(run):
        core = place.document.get(f"{SECTION}sp_attn_implementation")
        asked = core.value if core is not None else "sdpa"
        if asked == kernel:
            continue
        compares = run.runs("deepspeed>=0.19")
        yield Finding(
            f"sequences are shared around {asked}, and the model attends by {kernel}",
            (
                (core or place).label("" if core is not None else "sdpa by default"),
                own.label("what runs", primary=False),
            ),
            (
                "DeepSpeed refuses that from 0.19 on"
                if compares
                else "before 0.19 nothing compares them: each rank sees only its own part",
            ),
            f"write sp_attn_implementation: {kernel}",
            consequence="init" if compares else "silent",
        )


tensor_parallel_beside_adapters = rows(
    "tensor-parallel-beside-adapters",
    "error",
    "init",
    consumers=("deepspeed>=0.19.8",),
    sources=(
        "deepspeed 0.19.8 runtime/zero/stage_1_and_2.py `_create_param_mapping`: KeyError of "
        "`param_names`, in a run of peft 0.21.2 with tensor_parallel.autotp_size 2"
    ),
    rows=(
        Row(
            "deepspeed:tensor_parallel.autotp_size>1",
            "autotp_size {0.value} fails on a model with adapters",
            label="fails with a KeyError",
            why="AutoTP replaces the layers that hold the adapters, which ZeRO then cannot name",
            help="train all weights, or leave out tensor_parallel",
            effective=("(deepspeed:zero_optimization.stage=1|2)", "slot:adapter.kind=lora"),
        ),
    ),
)


tensor_parallel_under_zero_3 = rows(
    "tensor-parallel-under-zero-3",
    "error",
    "init",
    consumers=("deepspeed>=0.16.4,<0.19.4",),
    sources=(
        (
            "deepspeed 0.16.9, 0.17.6, 0.18.9, 0.19.3 runtime/engine.py "
            "`_configure_tensor_parallel`: the compatibility between 'autotp' and 'zero_stage = 3' "
            "has not been validated"
        ),
        (
            "deepspeed 0.19.4, 0.19.8 runtime/engine.py `_configure_tensor_parallel_states`: "
            "AutoTP + ZeRO stage 3 is supported"
        ),
    ),
    rows=(
        Row(
            "deepspeed:tensor_parallel.autotp_size>1",
            "autotp_size {0.value} is refused at ZeRO stage 3",
            label="refused",
            why="both split the same weights",
            help="use stage 1 or 2 beside tensor parallelism",
            effective=("deepspeed:zero_optimization.stage=3",),
        ),
    ),
)
