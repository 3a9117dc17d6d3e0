"""Which rules are proven by a real program, where, and why the others are not."""

from collections.abc import Mapping
from typing import Final

_LAUNCH: Final = "test_precision_quantization_launch.py"
_LIBRARIES: Final = "test_libraries.py"
_TRAINER: Final = "test_trainer.py"
_LAUNCHERS: Final = "test_launchers.py"
_PEFT: Final = "test_peft.py"
_SHARDING: Final = "../test_sharding_consumers.py"
_ZERO: Final = "../test_zero_consumers.py"

ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    "adapter-key-unread": (_PEFT, "test_a_rank_under_another_name_is_not_read"),
    "adam-is-adamw": (_LIBRARIES, "test_adam_is_adamw"),
    "adam-numbers-unread": (_LIBRARIES, "test_numbers_of_adam_are_for_adam"),
    "adapter-saved-empty": (
        _PEFT,
        "test_an_empty_state_dict_leaves_an_adapter_without_tensors",
    ),
    "allocator-setting-refused": (_LAUNCHERS, "test_the_allocator_refuses_the_setting"),
    "allgather-bucket-unusable": (_ZERO, "test_deepspeed_refuses_it"),
    "auto-never-filled": (_LIBRARIES, "test_auto_that_nobody_fills_is_dropped"),
    "batch-pinned-before-init": (
        _LIBRARIES,
        "test_a_batch_is_checked_for_one_process_before_the_group_is_there",
    ),
    "best-model-upside-down": (_TRAINER, "test_the_wrong_end_of_a_metric_is_the_default"),
    "bf16-updates-lost": (_LAUNCH, "test_bf16_updates_lost"),
    "checkpointing-option-refused": (
        _LAUNCHERS,
        "test_torch_refuses_another_option_of_checkpointing",
    ),
    "command-cut-short": (_LAUNCHERS, "test_a_command_ends_where_no_line_continues_it"),
    "contiguous-without-partition": (_LAUNCH, "test_contiguous_without_partition"),
    "cpu-optimizer-on-one-thread": (_LAUNCH, "test_cpu_optimizer_on_one_thread"),
    "device-filter-refused": (_LAUNCHERS, "test_the_form_of_a_device_filter"),
    "device-map-under-zero-3": (_LIBRARIES, "test_no_device_map_under_zero_3"),
    "flag-given-twice": (_LAUNCHERS, "test_argparse_keeps_the_last_value"),
    "fp16-trainable-weights": (_LAUNCH, "test_fp16_trainable_weights"),
    "fsdp-keys-of-another-version": (
        _SHARDING,
        "test_fsdp_2_passes_over_the_strategy_of_fsdp_1",
    ),
    "fsdp-wrap-class-of-another-model": (_LIBRARIES, "test_wrap_class_of_another_model"),
    "fsdp-wraps-nothing": (_SHARDING, "test_a_model_is_one_unit_where_no_policy_is_named"),
    "include-with-count": (_LAUNCH, "test_include_with_count"),
    "initial-loss-scale-too-high": (
        _LIBRARIES,
        "test_an_initial_scale_takes_a_step_for_every_halving",
    ),
    "launch-engines-exclude": (_LAUNCHERS, "test_accelerate_takes_one_engine"),
    "launcher-flags-behind-script": (
        _LAUNCHERS,
        "test_what_stands_behind_the_script_is_the_script_s",
    ),
    "launcher-precision-differs": (_LIBRARIES, "test_the_launcher_s_precision_gives_way"),
    "layers-to-transform-out-of-range": (_LIBRARIES, "test_layers_that_the_model_has_not"),
    "leaf-class-of-another-model": (_LIBRARIES, "test_leaf_class_of_another_model"),
    "legacy-stage-1": (_ZERO, "test_deepspeed_refuses_it"),
    "lora-reaches-vision-tower": (
        _LIBRARIES,
        "test_names_of_the_language_model_are_in_the_vision_tower",
    ),
    "low-precision-master-without-offload": (_ZERO, "test_deepspeed_refuses_it"),
    "machines-without-address": (_SHARDING, "test_the_launcher_rounds_processes_down"),
    "nodes-without-hostfile": (_LAUNCHERS, "test_without_a_hostfile_there_is_one_node"),
    "nodes-without-meeting-point": (_LAUNCH, "test_nodes_without_meeting_point"),
    "nvme-offload-below-stage-3": (_LIBRARIES, "test_nvme_below_stage_3_is_the_cpu"),
    "nvme-path-missing": (_ZERO, "test_deepspeed_refuses_it"),
    "offload-param-ignored": (_LIBRARIES, "test_keys_that_the_stage_is_not_given"),
    "parallel-width-does-not-divide": (_LIBRARIES, "test_the_last_process_is_in_no_group"),
    "prescaled-gradients-refused": (_ZERO, "test_deepspeed_refuses_it"),
    "processes-not-even-over-machines": (_SHARDING, "test_the_launcher_rounds_processes_down"),
    "quantised-twice": (_LAUNCH, "test_quantised_twice"),
    "quantized-gradients-need-scatter": (_ZERO, "test_deepspeed_refuses_it"),
    "reentrant-over-frozen-base": (
        _LIBRARIES,
        "test_reentrant_recomputation_of_a_frozen_input_has_no_gradient",
    ),
    "restarts-of-one-cycle": (_TRAINER, "test_a_restart_of_one_cycle_is_a_cosine"),
    "scheduler-rate-beats-optimizer": (_LAUNCHERS, "test_warm_up_sets_the_rate_itself"),
    "scheduler-without-decay": (_TRAINER, "test_warmup_alone_never_decays"),
    "split-batches-overrides-batch": (
        _LIBRARIES,
        "test_split_batches_cut_what_a_device_was_to_get",
    ),
    "stage-2-keys-at-stage-3": (_LIBRARIES, "test_keys_that_the_stage_is_not_given"),
    "stage-3-keys-below-stage-3": (_LIBRARIES, "test_keys_that_the_stage_is_not_given"),
    "variable-not-exported": (_LAUNCHERS, "test_a_variable_is_not_exported_by_itself"),
    "visible-device-twice": (_LAUNCHERS, "test_a_device_that_is_listed_twice_leaves_none"),
    "widths-do-not-make-processes": (_LAUNCHERS, "test_the_mesh_has_to_be_of_all_processes"),
}
"""Rule -> (file beside this one, test) where it is more than a row of a table."""

Rules = frozenset[str]


def _of(*names: str) -> Rules:
    return frozenset(" ".join(names).split())


NOT_PROVEN: Final[Mapping[str, Rules]] = {
    "what happens needs a GPU: its kernels, its dtypes, its number, or its links": _of(
        "bf16-model-in-fp16 compile-without-hardware experts-are-no-leaf flash-attention-in-fp32",
        "flash-attention-without-hardware fp8-without-hardware",
        "int8-products-in-fp16 int8-without-hardware more-processes-than-devices",
        "more-processes-than-visible peer-access-on-rtx-40 pure-bf16-refused device-order-unset",
        "quantised-base-under-fsdp quantised-base-under-zero-3 visible-device-missing",
        "vllm-without-hardware offload-without-zero nvme-buffer-below-parameter",
        "init-on-quantised-base merge-into-quantised-base sageattention-of-nf4",
        "loss-scaling-over-bf16 optimizer-not-for-offload",
        "fp8-quanto-replaced four-bits-without-qlora",
    ),
    "it is a process group of several processes that refuses it, or hangs": _of(
        "deepspeed-and-fsdp device-map-in-distributed-run fsdp-of-one-process",
        "fsdp-checkpoints-twice",
        "fsdp-weights-only-in-shards non-reentrant-adapter-under-zero-3",
        "unused-parameters-with-checkpointing processes-started-twice more-than-allocated",
        "pipeline-under-zero-2 sequence-width-does-not-divide-heads",
        "reference-model-beside-zero-3 best-model-of-weights-only auto-find-batch-size-refused",
        "layerwise-optimizer-refused visible-devices-overridden world-size-differs",
        "loopback-between-nodes one-rank-for-every-node port-taken rank-beyond-nodes",
        "nodes-train-apart projection-under-zero",
    ),
    "it runs out of memory, and is measured by the memory account's own tests": _of(
        "buckets-fill-device device-memory-exceeded evaluation-batch-above-training",
        "every-process-loads-the-model least-batch-of-zero-3 logits-kept-on-device",
        "nvme-buffers-fill-memory offload-beyond-host-memory offload-beyond-nvme",
        "persistence-keeps-model-whole saved-module-under-zero-3",
    ),
    "it is slower on the hardware that is meant, and refused nowhere": _of(
        "cpu-beside-accelerators fast-link-turned-off flops-profiler-left-on",
        "generation-under-zero-3 more-workers-than-cores offload-without-pinned-memory",
        "several-devices-in-one-process timers-left-on unequal-devices",
    ),
    "the trainer of the method needs its model, tokenizer and data from a hub": _of(
        "adapter-of-another-base adapter-without-numbers averaged-weights-not-possible",
        "columns-of-images-removed",
        "dpo-loss-unknown fewer-samples-than-a-batch generation-length-missing grouping-ignored",
        "image-longer-than-sequence images-packed",
        "kto-batch-of-one language-model-tuned-beside-lora",
        "longer-than-context new-tokens-not-trained",
        "packing-without-varlen prompt-fills-the-sequence",
        "temperature-of-zero template-of-another-family",
        "tied-layer-adapted optimizer-targets-missing schedule-of-a-schedule-free-optimizer",
        "beta-of-zero data-sets-share-a-cache key-of-another-objective",
    ),
    "a checkpoint of several processes is written and read again": _of(
        "adapter-resumed-under-zero-3 elastic-checkpoint-at-stage-3 resume-from-rounded-weights",
        "resume-of-weights-only",
    ),
    "it is the absence of a reader, which no run shows": _of(
        "accelerate-file-not-read deepspeed-checkpointing-ignored leaf-modules-below-stage-3",
        "variable-misspelt",
        "nvme-settings-unused optimizer-exchanged-on-offload option-of-another-choice",
        "token-mended-and-frozen trl-option-unread flags-without-effect",
    ),
    "it is a batch system's part, and none runs here": _of(
        "batch-directive-not-read devices-left-idle no-device-asked-for nodes-without-srun",
    ),
    "it is advice: the values are taken as they are written": _of(
        "learning-rate-beyond-adam learning-rate-of-the-other-method",
        "preference-rate-as-for-sft secret-in-file",
    ),
    "it speaks of tunec's own reading, and no other program has a part in it": _of(
        "unrecognised-file unused-allowance",
    ),
}
"""Why no proof is run here -> the rules."""
