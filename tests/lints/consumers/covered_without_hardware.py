"""Rules on hardware, memory and time, and the tests that prove them without any device."""

from collections.abc import Mapping
from typing import Final

_ATTENTION: Final = "test_attention_and_recomputation.py"
_AXOLOTL: Final = "test_axolotl.py"
_DEVICES: Final = "test_devices.py"
_LLAMAFACTORY: Final = "test_llamafactory.py"
_MACHINE: Final = "test_runs_on_one_machine.py"
_OLDER: Final = "test_older_trl.py"
_SIZES: Final = "test_sizes.py"

WITHOUT_HARDWARE: Final[Mapping[str, tuple[str, str]]] = {
    "best-model-not-loaded": (
        _AXOLOTL,
        "test_the_best_model_is_loaded_where_both_intervals_are_known",
    ),
    "buckets-fill-device": (_SIZES, "test_buckets_are_made_whole"),
    "cache-beside-checkpointing": (
        _ATTENTION,
        "test_nothing_is_kept_where_a_layer_runs_again",
    ),
    "debugging-left-on": (_MACHINE, "test_collectives_are_checked_by_further_ones"),
    "device-newer-than-torch": (
        _DEVICES,
        "test_torch_warns_of_a_device_that_it_has_no_kernels_for",
    ),
    "device-older-than-torch": (
        _DEVICES,
        "test_torch_names_the_builds_that_have_kernels_for_an_old_device",
    ),
    "engine-leaves-no-room": (
        _SIZES,
        "test_an_engine_in_the_trainer_s_process_is_told_its_share",
    ),
    "evaluation-batch-above-training": (
        _SIZES,
        "test_evaluation_takes_its_own_number_of_samples",
    ),
    "every-process-loads-the-model": (_SIZES, "test_every_process_loads_the_whole_model"),
    "example-flags-refused-together": (_MACHINE, "test_two_models_are_no_one_engine"),
    "experts-are-no-leaf": (_MACHINE, "test_experts_are_gathered_by_all_ranks_together"),
    "four-bits-without-qlora": (_AXOLOTL, "test_an_adapter_decides_the_bits_of_its_base"),
    "gathered-again-for-recomputation": (
        _ATTENTION,
        "test_the_trainer_warns_of_another_gather",
    ),
    "gloo-between-devices": (_DEVICES, "test_a_backend_is_taken_as_it_is_written"),
    "hub-without-saves": (_MACHINE, "test_what_is_never_saved_is_never_pushed"),
    "int8-products-in-fp16": (_DEVICES, "test_products_of_8_bits_are_made_of_fp16"),
    "int8-without-hardware": (
        _DEVICES,
        "test_bitsandbytes_has_slow_products_of_8_bits_for_older_devices",
    ),
    "kernels-passed-over": (_AXOLOTL, "test_kernels_of_adapters_have_no_dropout"),
    "leaf-modules-below-stage-3": (_MACHINE, "test_a_leaf_is_asked_for_by_stage_3_alone"),
    "language-model-tuned-beside-lora": (
        "test_minicpm_v.py",
        "test_it_trains_its_language_model_or_an_adapter",
    ),
    "least-batch-of-zero-3": (_SIZES, "test_each_process_adds_a_sample_to_the_batch"),
    "projector-not-adapted": (_LLAMAFACTORY, "test_all_is_every_layer_but_a_projector_s"),
    "liger-not-for-the-model": (_LLAMAFACTORY, "test_liger_has_kernels_for_some_models"),
    "minibatch-refused": (_OLDER, "test_minibatches_are_whole_and_of_eight"),
    "more-processes-than-devices": (_DEVICES, "test_two_processes_take_one_device"),
    "more-than-allocated": (_DEVICES, "test_a_job_sees_the_devices_that_it_was_given"),
    "no-device-left-for-vllm": (
        _DEVICES,
        "test_an_engine_takes_the_device_behind_those_that_train",
    ),
    "nodes-without-srun": (_DEVICES, "test_the_first_node_waits_for_the_others"),
    "number-of-another-method": (_AXOLOTL, "test_a_method_is_given_its_own_numbers"),
    "nvme-buffers-fill-memory": (_SIZES, "test_a_buffer_of_nvme_is_of_two_bytes_each"),
    "offload-beyond-host-memory": (_SIZES, "test_an_offload_takes_what_deepspeed_estimates"),
    "offload-beyond-nvme": (_SIZES, "test_what_is_written_to_nvme"),
    "requeued-from-the-start": (_MACHINE, "test_a_command_that_is_run_again_begins_again"),
    "secret-in-file": (_MACHINE, "test_a_token_is_saved_beside_the_model"),
    "template-of-another-release": (
        _LLAMAFACTORY,
        "test_a_template_is_looked_up_by_its_name",
    ),
    "softcapping-left-out": (_ATTENTION, "test_torch_s_kernel_has_no_cap"),
    "training-not-asked-for": (
        _MACHINE,
        "test_a_script_is_not_asked_to_train_unless_it_is_told",
    ),
    "turn-words-untrained": (
        _LLAMAFACTORY,
        "test_a_turn_ends_by_a_word_whose_row_no_adapter_moves",
    ),
    "unequal-devices": (_MACHINE, "test_each_step_waits_for_the_slowest"),
}
