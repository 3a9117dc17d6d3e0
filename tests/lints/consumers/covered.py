"""Which rules are proven by a real program, where, and why the others are not."""

from collections.abc import Mapping
from typing import Final

from covered_by_files import FILES
from covered_without_hardware import WITHOUT_HARDWARE

_LAUNCH: Final = "test_precision_quantization_launch.py"
_LIBRARIES: Final = "test_libraries.py"
_TRAINER: Final = "test_trainer.py"
_LAUNCHERS: Final = "test_launchers.py"
_PEFT: Final = "test_peft.py"
_STARTED: Final = "test_started.py"
_KERNELS: Final = "test_kernels.py"
_TRL: Final = "test_trl_trainers.py"
_SHARDING: Final = "../test_sharding_consumers.py"
_PARALLEL: Final = "test_parallel.py"
_GENERATION: Final = "test_generation.py"
_ZERO: Final = "../test_zero_consumers.py"
_SCRIPTS: Final = "test_scripts.py"
_OLDER: Final = "test_older_trl.py"
_MEETING: Final = "test_resuming_and_meeting.py"
_WITHOUT: Final = "test_started_without.py"
_WORDS: Final = "test_launcher_words.py"
_TOKENS: Final = "test_tokens_and_quantization.py"

ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    **FILES,
    **WITHOUT_HARDWARE,
    "stream-in-grouped-training": (_OLDER, "test_groups_are_not_drawn_from_a_stream"),
    "metric-not-returned": (_OLDER, "test_an_evaluation_returns_less_than_it_logs"),
    "fsdp-adapter-of-one-rank": (_OLDER, "test_an_adapter_is_not_gathered_for_a_checkpoint"),
    "launcher-flag-unknown": (_WORDS, "test_torchrun_has_no_flag_of_its_forerunner"),
    "launcher-value-refused": (_WORDS, "test_torchrun_takes_few_words"),
    "word-taken-for-script": (_WORDS, "test_the_first_word_is_the_script"),
    "visible-device-unreadable": (_WORDS, "test_cuda_reads_numbers"),
    "variable-set-too-late": (_WORDS, "test_a_variable_is_given_when_a_program_is_started"),
    "launch-left-out": (_WORDS, "test_accelerate_has_no_flags_without_a_command"),
    "file-of-another-reader": (
        _WORDS,
        "test_a_configuration_of_deepspeed_is_none_of_accelerate",
    ),
    "fsdp-prefetch-refused": (_WORDS, "test_fsdp_has_few_ways_to_fetch_ahead"),
    "fsdp-2-before-torch-2-6": (_WORDS, "test_fsdp_2_asks_for_a_newer_torch"),
    "context-attention-not-sdpa": (_WORDS, "test_a_shared_context_is_attended_to_by_torch"),
    "adalora-recomputed-by-reentrance": (_WITHOUT, "test_an_adapter_of_adalora_is_ready_twice"),
    "engine-flags-unread": (_WITHOUT, "test_no_engine_is_started_by_its_settings"),
    "non-reentrant-adapter-under-zero-3": (
        _TRAINER,
        "test_frozen_weights_are_gone_when_they_are_recomputed",
    ),
    "evaluation-below-stage-3": (_WITHOUT, "test_the_trainer_evaluates_by_stage_3_alone"),
    "assignment-with-blanks": (_WITHOUT, "test_a_name_before_a_blank_is_a_command"),
    "file-for-a-module": (_WITHOUT, "test_a_file_is_no_module"),
    "script-variable-misspelt": (_WITHOUT, "test_a_variable_that_is_not_set_is_no_word"),
    "switch-with-a-value": (_WITHOUT, "test_a_switch_takes_no_value"),
    "variable-left-behind": (_WITHOUT, "test_a_variable_is_exported_by_its_beginning"),
    "flag-with-another-dash": (_WITHOUT, "test_argparse_knows_no_flag_of_one_dash"),
    "flag-without-value": (_WITHOUT, "test_argparse_asks_for_a_value"),
    "meeting-of-another-name": (_WITHOUT, "test_each_node_draws_its_own_word"),
    "node-rank-missing": (_WITHOUT, "test_a_node_without_ssh_is_told_its_number"),
    "optimizer-made-by-script": (_WITHOUT, "test_accelerate_takes_one_optimizer"),
    "zenflow-refused": (_TRAINER, "test_zenflow_selects_no_more_often_than_it_updates"),
    "expert-width-refused": (_TRAINER, "test_groups_of_experts_fill_the_processes"),
    "tensor-width-unread": (_TRAINER, "test_a_width_in_the_inner_block_is_none"),
    "warmup-by-logarithm": (_WITHOUT, "test_a_warm_up_of_deepspeed_rises_by_a_logarithm"),
    "address-refused": (_MEETING, "test_an_address_with_a_user_is_nobody_s"),
    "automatic-bucket-not-whole": (_MEETING, "test_deepspeed_takes_no_fraction_for_a_bucket"),
    "deprecated-key": (_MEETING, "test_an_old_key_is_read_as_its_successor"),
    "engine-settings-overridden": (
        _MEETING,
        "test_the_trainer_s_engine_takes_the_place_of_the_launcher_s",
    ),
    "fsdp-model-left-in-shards": (_MEETING, "test_shards_are_no_model"),
    "json-text-refused": (_MEETING, "test_a_mapping_in_python_s_words_is_no_json"),
    "port-variable-not-read": (_MEETING, "test_torchrun_does_not_read_the_port_s_variable"),
    "resume-from-a-word": (_MEETING, "test_a_word_is_a_folder"),
    "resume-of-another-run": (
        _MEETING,
        "test_states_are_loaded_into_the_number_of_processes_that_wrote_them",
    ),
    "tasks-train-apart": (_MEETING, "test_a_task_of_slurm_is_a_run_of_its_own"),
    "zero-of-one-process": (_MEETING, "test_one_process_holds_all_states"),
    "accelerate-file-not-read": (_STARTED, "test_only_accelerate_s_launcher_reads_its_file"),
    "assistant-mask-empty": (_TRL, "test_a_template_without_marks_has_no_mask"),
    "attention-word-unknown": (_TRL, "test_transformers_looks_up_the_kernel_of_attention"),
    "cpo-loss-unfit": (_TOKENS, "test_cpo_reads_the_margin_for_one_loss"),
    "quantisation-without-training": (_TOKENS, "test_a_form_says_whether_it_trains"),
    "quantization-setting-refused": (_TOKENS, "test_a_block_is_checked_when_it_is_read"),
    "stream-without-steps": (_TOKENS, "test_a_stream_has_no_length"),
    "token-outside-vocabulary": (_TOKENS, "test_an_end_is_looked_up_in_the_vocabulary"),
    "compute-dtype-unknown": (_TRL, "test_auto_is_no_dtype_of_torch"),
    "data-set-type-of-another-method": (_TRL, "test_axolotl_looks_up_the_type_of_a_data_set"),
    "distillation-refused": (_TRL, "test_a_share_lies_between_0_and_1"),
    "exclusion-matches-nothing": (_PEFT, "test_a_block_in_a_list_excludes_nothing"),
    "frozen-modules-missing": (_TRL, "test_a_layer_has_blocks_and_no_projections"),
    "adapter-frozen-with-the-base": (_TRL, "test_patterns_of_a_base_freeze_its_adapter"),
    "preference-loss-not-computed": (_TRL, "test_a_loss_of_pairs_is_not_handed_on"),
    "streamed-batches-handed-out": (_TRL, "test_batches_of_several_lengths_are_not_joined"),
    "generation-number-refused": (_TRL, "test_no_iteration_draws_no_batch"),
    "option-not-for-images": (_TRL, "test_images_are_not_cut_off"),
    "reward-weights-miscounted": (_TRL, "test_a_reward_has_a_weight"),
    "adam-is-adamw": (_LIBRARIES, "test_adam_is_adamw"),
    "adam-numbers-unread": (_LIBRARIES, "test_numbers_of_adam_are_for_adam"),
    "adapter-key-unread": (_PEFT, "test_a_rank_under_another_name_is_not_read"),
    "adapter-of-another-base": (_KERNELS, "test_the_base_of_an_adapter_is_not_compared"),
    "adapter-saved-empty": (_PEFT, "test_an_empty_state_dict_leaves_an_adapter_without_tensors"),
    "adapter-without-numbers": (_KERNELS, "test_an_adapter_without_its_numbers"),
    "allgather-bucket-unusable": (_ZERO, "test_deepspeed_refuses_it"),
    "allocator-setting-refused": (_LAUNCHERS, "test_the_allocator_refuses_the_setting"),
    "auto-find-batch-size-refused": (_STARTED, "test_the_trainer_refuses_to_start"),
    "auto-never-filled": (_LIBRARIES, "test_auto_that_nobody_fills_is_dropped"),
    "batch-directive-not-read": (_LAUNCHERS, "test_an_option_behind_a_command_is_not_read"),
    "batch-pinned-before-init": (
        _LIBRARIES,
        "test_a_batch_is_checked_for_one_process_before_the_group_is_there",
    ),
    "best-model-of-weights-only": (_STARTED, "test_the_trainer_refuses_to_start"),
    "best-model-upside-down": (_TRAINER, "test_the_wrong_end_of_a_metric_is_the_default"),
    "beta-of-zero": (_TRL, "test_a_beta_of_zero_leaves_the_weights"),
    "bf16-model-in-fp16": (_KERNELS, "test_a_large_activation_is_beyond_fp16"),
    "bf16-updates-lost": (_LAUNCH, "test_bf16_updates_lost"),
    "checkpointing-option-refused": (
        _LAUNCHERS,
        "test_torch_refuses_another_option_of_checkpointing",
    ),
    "columns-of-images-removed": (_STARTED, "test_columns_that_the_collator_needs_are_removed"),
    "command-cut-short": (_LAUNCHERS, "test_a_command_ends_where_no_line_continues_it"),
    "compile-without-hardware": (_KERNELS, "test_triton_has_no_code_for_pascal"),
    "compile-word-unknown": (_LIBRARIES, "test_a_backend_of_compile_that_nobody_knows"),
    "contiguous-without-partition": (_LAUNCH, "test_contiguous_without_partition"),
    "count-without-a-number": (_LIBRARIES, "test_a_count_of_text_is_not_divided"),
    "cpu-beside-accelerators": (_STARTED, "test_training_stays_on_the_processor"),
    "cpu-optimizer-on-one-thread": (_LAUNCH, "test_cpu_optimizer_on_one_thread"),
    "deepspeed-and-fsdp": (_STARTED, "test_the_trainer_refuses_to_start"),
    "deepspeed-checkpointing-ignored": (
        _KERNELS,
        "test_deepspeed_s_recomputation_is_configured_by_nobody",
    ),
    "device-filter-refused": (_LAUNCHERS, "test_the_form_of_a_device_filter"),
    "device-map-in-distributed-run": (
        _STARTED,
        "test_no_device_map_of_several_in_a_distributed_run",
    ),
    "device-map-under-zero-3": (_LIBRARIES, "test_no_device_map_under_zero_3"),
    "devices-left-idle": (
        _KERNELS,
        "test_torchrun_is_of_one_node_and_one_process_unless_it_is_told",
    ),
    "dpo-loss-unknown": (_TRL, "test_a_loss_is_looked_up_at_the_first_step"),
    "elastic-checkpoint-at-stage-3": (_KERNELS, "test_stage_3_is_not_given_elastic_checkpoints"),
    "fewer-samples-than-a-batch": (_STARTED, "test_fewer_samples_than_a_batch_are_no_step"),
    "flag-given-twice": (_LAUNCHERS, "test_argparse_keeps_the_last_value"),
    "fp16-trainable-weights": (_LAUNCH, "test_fp16_trainable_weights"),
    "fsdp-checkpoints-twice": (_STARTED, "test_the_trainer_refuses_to_start"),
    "fsdp-class-with-a-blank": (_LIBRARIES, "test_classes_to_wrap_are_split_at_the_commas_alone"),
    "fsdp-keys-of-another-version": (_SHARDING, "test_fsdp_2_passes_over_the_strategy_of_fsdp_1"),
    "fsdp-of-one-process": (_STARTED, "test_the_trainer_refuses_to_start"),
    "fsdp-weights-only-in-shards": (_STARTED, "test_the_trainer_refuses_to_start"),
    "fsdp-wrap-class-of-another-model": (_LIBRARIES, "test_wrap_class_of_another_model"),
    "fsdp-wraps-nothing": (_SHARDING, "test_a_model_is_one_unit_where_no_policy_is_named"),
    "generation-length-missing": (_STARTED, "test_nobody_says_how_long_a_generated_text_is"),
    "grouping-ignored": (_STARTED, "test_nothing_is_grouped_that_has_no_length"),
    "hostfile-refused": (_LAUNCHERS, "test_the_launcher_refuses_the_hostfile"),
    "include-with-count": (_LAUNCH, "test_include_with_count"),
    "init-on-quantised-base": (_KERNELS, "test_what_is_quantised_has_no_weights_to_begin_with"),
    "initial-loss-scale-too-high": (
        _LIBRARIES,
        "test_an_initial_scale_takes_a_step_for_every_halving",
    ),
    "lora-targets-left-out": (_PEFT, "test_targets_are_looked_up_by_kind_of_model"),
    "kto-batch-of-one": (_TRL, "test_kto_of_one_sample_is_refused"),
    "launch-engines-exclude": (_LAUNCHERS, "test_accelerate_takes_one_engine"),
    "fp16-on-cpu": (_LAUNCHERS, "test_accelerate_computes_no_fp16_on_a_cpu"),
    "launcher-flag-of-another": (_LAUNCHERS, "test_a_launcher_refuses_the_flags_of_another"),
    "launcher-flags-behind-script": (
        _LAUNCHERS,
        "test_what_stands_behind_the_script_is_the_script_s",
    ),
    "launcher-precision-differs": (_LIBRARIES, "test_the_launcher_s_precision_gives_way"),
    "layers-to-transform-out-of-range": (_LIBRARIES, "test_layers_that_the_model_has_not"),
    "layerwise-optimizer-refused": (_STARTED, "test_the_optimizer_is_refused"),
    "leaf-class-of-another-model": (_LIBRARIES, "test_leaf_class_of_another_model"),
    "learning-rate-beyond-adam": (_STARTED, "test_a_step_of_adam_is_as_long_as_its_rate"),
    "legacy-stage-1": (_ZERO, "test_deepspeed_refuses_it"),
    "logits-kept-on-device": (_STARTED, "test_logits_stay_tensors_until_the_end"),
    "longer-than-context": (_KERNELS, "test_positions_beyond_the_context_are_taken"),
    "lora-reaches-vision-tower": (
        _LIBRARIES,
        "test_names_of_the_language_model_are_in_the_vision_tower",
    ),
    "low-precision-master-without-offload": (_ZERO, "test_deepspeed_refuses_it"),
    "machines-without-address": (_SHARDING, "test_the_launcher_rounds_processes_down"),
    "more-processes-than-slots": (_LAUNCHERS, "test_a_count_of_devices_takes_the_place_of_slots"),
    "more-workers-than-cores": (_KERNELS, "test_more_workers_than_cores_are_warned_of"),
    "new-tokens-not-trained": (_KERNELS, "test_rows_for_new_tokens_are_frozen"),
    "no-device-asked-for": (_LAUNCHERS, "test_a_job_has_no_device_that_it_does_not_ask_for"),
    "nodes-train-apart": (
        _KERNELS,
        "test_torchrun_is_of_one_node_and_one_process_unless_it_is_told",
    ),
    "nodes-without-hostfile": (_LAUNCHERS, "test_without_a_hostfile_there_is_one_node"),
    "nodes-without-meeting-point": (_LAUNCH, "test_nodes_without_meeting_point"),
    "nvme-buffer-below-parameter": (_KERNELS, "test_a_parameter_beyond_a_buffer_is_not_fetched"),
    "nvme-offload-below-stage-3": (_LIBRARIES, "test_nvme_below_stage_3_is_the_cpu"),
    "nvme-path-missing": (_ZERO, "test_deepspeed_refuses_it"),
    "offload-param-ignored": (_LIBRARIES, "test_keys_that_the_stage_is_not_given"),
    "offload-without-zero": (_KERNELS, "test_cpu_adam_does_not_step_what_is_on_a_device"),
    "one-rank-for-every-node": (_KERNELS, "test_a_variable_of_slurm_is_put_in_before_srun_starts"),
    "optimizer-exchanged-on-offload": (_STARTED, "test_an_offloaded_optimizer_is_exchanged"),
    "optimizer-not-for-offload": (
        _KERNELS,
        "test_lamb_is_the_one_of_the_device_where_it_is_offloaded",
    ),
    "optimizer-targets-missing": (_STARTED, "test_the_optimizer_is_refused"),
    "parallel-width-does-not-divide": (_LIBRARIES, "test_the_last_process_is_in_no_group"),
    "peer-access-on-rtx-40": (_STARTED, "test_an_old_driver_and_two_rtx_40_cannot_talk"),
    "persistence-keeps-model-whole": (_KERNELS, "test_what_is_below_the_threshold_stays_whole"),
    "pipeline-under-zero-2": (_KERNELS, "test_a_pipeline_has_its_gradients_whole"),
    "port-taken": (_KERNELS, "test_one_port_is_of_one_run"),
    "prescaled-gradients-refused": (_ZERO, "test_deepspeed_refuses_it"),
    "processes-not-even-over-machines": (_SHARDING, "test_the_launcher_rounds_processes_down"),
    "projection-under-zero": (_KERNELS, "test_weights_are_flat_under_zero_2"),
    "quantised-base-under-fsdp": (
        _KERNELS,
        "test_packed_weights_cannot_be_flattened_with_the_rest",
    ),
    "quantised-twice": (_LAUNCH, "test_quantised_twice"),
    "quantized-gradients-need-scatter": (_ZERO, "test_deepspeed_refuses_it"),
    "rank-beyond-nodes": (_KERNELS, "test_a_rank_is_taken_as_it_is"),
    "reentrant-over-frozen-base": (
        _LIBRARIES,
        "test_reentrant_recomputation_of_a_frozen_input_has_no_gradient",
    ),
    "restarts-of-one-cycle": (_TRAINER, "test_a_restart_of_one_cycle_is_a_cosine"),
    "resume-of-weights-only": (_STARTED, "test_a_checkpoint_of_weights_has_no_optimizer"),
    "saved-module-under-zero-3": (_KERNELS, "test_modules_beside_an_adapter_are_copied_whole"),
    "scheduler-rate-beats-optimizer": (_LAUNCHERS, "test_warm_up_sets_the_rate_itself"),
    "scheduler-without-decay": (_TRAINER, "test_warmup_alone_never_decays"),
    "sequence-width-does-not-divide-heads": (_KERNELS, "test_heads_are_spread_evenly"),
    "several-devices-in-one-process": (
        _STARTED,
        "test_several_devices_of_one_process_are_data_parallel",
    ),
    "split-batches-overrides-batch": (
        _LIBRARIES,
        "test_split_batches_cut_what_a_device_was_to_get",
    ),
    "stage-2-keys-at-stage-3": (_LIBRARIES, "test_keys_that_the_stage_is_not_given"),
    "stage-3-keys-below-stage-3": (_LIBRARIES, "test_keys_that_the_stage_is_not_given"),
    "temperature-of-zero": (_KERNELS, "test_no_text_is_sampled_at_temperature_0"),
    "tied-layer-adapted": (_KERNELS, "test_one_end_of_tied_weights_is_adapted"),
    "unused-parameters-with-checkpointing": (_KERNELS, "test_a_parameter_is_ready_only_once"),
    "variable-misspelt": (_KERNELS, "test_a_misspelt_variable_is_not_read"),
    "variable-not-exported": (_LAUNCHERS, "test_a_variable_is_not_exported_by_itself"),
    "visible-device-twice": (_LAUNCHERS, "test_a_device_that_is_listed_twice_leaves_none"),
    "widths-do-not-make-processes": (_LAUNCHERS, "test_the_mesh_has_to_be_of_all_processes"),
    "world-without-launcher": (_LAUNCHERS, "test_a_world_without_a_rank_is_one_process"),
    "visible-device-missing": (_KERNELS, "test_a_device_that_is_not_there_hides_those_behind_it"),
    "more-processes-than-visible": (_KERNELS, "test_what_is_not_visible_is_not_there"),
    "nvme-settings-unused": (_KERNELS, "test_a_path_is_not_used_where_the_device_is_the_cpu"),
    "image-longer-than-sequence": (
        _KERNELS,
        "test_an_image_that_is_cut_has_more_features_than_tokens",
    ),
    "generation-under-zero-3": (_STARTED, "test_every_process_generates_until_the_last_has_ended"),
    "schedule-of-a-schedule-free-optimizer": (
        _STARTED,
        "test_the_rate_falls_for_an_optimizer_without_a_schedule_too",
    ),
    "generation-beside-loss-only": (
        _GENERATION,
        "test_nothing_is_generated_unless_both_say_so",
    ),
    "generation-keys-unread": (_GENERATION, "test_nothing_is_generated_unless_both_say_so"),
    "images-packed": (_TRL, "test_images_are_not_packed"),
    "reward-head-not-trained": (_PEFT, "test_the_head_of_a_reward_is_trained_by_its_task"),
    "sequence-attention-differs": (_PARALLEL, "test_the_exchange_is_around_one_attention"),
    "sequence-groups-uncounted": (
        _PARALLEL,
        "test_groups_that_share_a_sequence_are_data_parallel",
    ),
    "tensor-parallel-beside-adapters": (
        _PARALLEL,
        "test_adapters_are_unknown_to_split_layers",
    ),
    "visible-devices-overridden": (_PARALLEL, "test_a_count_beats_the_visible_devices"),
    "dora-on-quantised-base": (_SCRIPTS, "test_layers_of_awq_have_no_dora"),
    "example-flag-unread": (_SCRIPTS, "test_a_schedule_passes_over_the_numbers_of_others"),
    "example-number-unusable": (_SCRIPTS, "test_an_example_cannot_train_with_these_numbers"),
    "example-of-another-model": (_SCRIPTS, "test_the_xl_denoiser_wants_more_than_the_text"),
    "flag-not-read-by-llama-cookbook": (
        _SCRIPTS,
        "test_llama_cookbook_goes_on_without_a_parameter_that_it_does_not_know",
    ),
    "flags-refused-by-llama-cookbook": (
        _SCRIPTS,
        "test_llama_cookbook_refuses_words_that_it_does_not_have",
    ),
    "packing-without-varlen": (_OLDER, "test_packed_samples_see_each_other"),
    "prompt-fills-the-sequence": (
        _OLDER,
        "test_a_prompt_that_fills_the_sequence_leaves_no_answer",
    ),
    "rate-of-a-rate-free-optimizer": (_SCRIPTS, "test_prodigy_steps_by_its_own_estimate"),
    "sat-flags-clash": (_SCRIPTS, "test_sat_takes_one_precision_and_one_count"),
    "targets-in-one-word": (_SCRIPTS, "test_names_with_commas_are_one_name"),
    "video-longer-than-sequence": (
        _SCRIPTS,
        "test_a_video_that_is_cut_has_more_features_than_tokens",
    ),
    "vllm-width-does-not-divide": (_SCRIPTS, "test_an_engine_is_of_as_many_processes_each"),
    "generation-under-fsdp-1": (
        _GENERATION,
        "test_the_root_of_fsdp_is_a_share_while_it_generates",
    ),
    "glm-4-file-refused": (_SCRIPTS, "test_glm_s_classes_take_what_they_have"),
    "key-outside-its-block": (_SCRIPTS, "test_glm_s_classes_take_what_they_have"),
    "loopback-between-nodes": (
        _MEETING,
        "test_a_node_on_its_loopback_gives_others_its_own_address",
    ),
    "processes-started-twice": (_KERNELS, "test_one_port_is_of_one_run"),
    "script-flag-unknown": (
        _SCRIPTS,
        "test_argparse_refuses_a_flag_that_the_script_does_not_have",
    ),
    "tracker-turned-off": (_OLDER, "test_a_tracker_that_is_turned_off_is_not_there"),
    "reference-model-beside-zero-3": (_TRL, "test_a_reference_is_a_second_model"),
}
"""Rule -> (file beside this one, test) where it is more than a row of a table."""

Rules = frozenset[str]


def _of(*names: str) -> Rules:
    return frozenset(" ".join(names).split())


NOT_PROVEN: Final[Mapping[str, Rules]] = {
    "kernels refuse it that are built for a GPU, and are loaded only there": _of(
        "flash-attention-in-fp32 flash-attention-without-hardware vllm-without-hardware",
        "stored-form-not-for-training",
    ),
    "torch's kernel for CUDA lacks bf16, and the one for a CPU has it": _of(
        "loss-scaling-over-bf16"
    ),
    "SimpleTuner asks after it has loaded the models that it validates": _of(
        "averages-validated-under-deepspeed"
    ),
    "its program ends where it finds no GPU, before it looks": _of("unsloth-on-several-devices"),
    "CUDA's driver numbers the devices": _of("device-order-unset"),
    "NCCL chooses its links by the devices that it finds": _of("fast-link-turned-off"),
    "the weights have to lie on another device than the host": _of("fsdp-offload-of-sent-weights"),
    "it runs out of memory: the account is held against steps that failed, in "
    "tests/analyses/memory/test_measured.py": _of("device-memory-exceeded"),
    "it is read by NCCL, or by a torch that is older than the installed one": _of(
        "number-variable-in-words variable-of-a-newer-torch",
    ),
    "only releases check it that are older than those asked here": _of(
        "optimizer-without-scheduler"
    ),
    "its script is only in a repository, and its flags were read there": _of(
        "alpaca-lora-flags-refused chatglm-flags-clash",
        "recipe-flag-without-sign script-word-unknown starcoder-switch-inverted",
        "script-cuts-images script-settings-clash",
        "example-flag-refused",
        "chat-form-of-another-model",
    ),
    "its tracker is not among the programs that are asked here": _of("tracker-project-refused"),
    "an example script of transformers has no part in its package, and was read there": _of(
        "example-data-refused example-value-refused",
    ),
    "it is a batch system's part, and none runs here": _of(
        "batch-option-misspelt slurm-variable-unset",
    ),
    "it takes an engine that shards over devices, or swaps to NVMe, and its source was read": _of(
        "averaged-weights-under-zero-3 fsdp-8-bit-states-lost nvme-optimizer-buffers-too-few",
        "partial-offload-to-nvme quantised-weights-in-bf16 super-offload-not-on-cpu",
    ),
    "it is advice: the values are taken as they are written": _of(
        "learning-rate-of-the-other-method preference-rate-as-for-sft",
    ),
    "it speaks of tunec's own reading, and no other program has a part in it": _of(
        "unrecognised-file unused-allowance",
    ),
}
"""Why no proof is run here -> the rules."""
