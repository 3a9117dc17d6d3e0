"""What the real programs must say of the bad examples on the rules' pages: one row a proof.

`program` is a name in `programs.PROGRAMS`. A row of REFUSED holds where the example is refused with
these words and no good example of the page is refused with them; a row of SEEN where the program
takes the example and its answer shows that the value is not what is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """An example of a rule's page, the release that is asked, and what must be seen."""

    rule: str
    number: int
    """Which of the page's bad examples, from 0."""
    program: str
    version: str
    text: str = ""
    """Words of the refusal; empty where the example is taken."""
    shows: Callable[[Answer], bool] = lambda _: True


def _at(path: str) -> Callable[[Answer], Any]:
    def look(answer: Answer) -> Any:
        for part in path.split("/"):
            answer = answer[part]
        return answer

    return look


def _is(path: str, value: Any) -> Callable[[Answer], bool]:
    look = _at(path)
    return lambda answer: bool(look(answer) == value)


def _has(path: str, value: Any) -> Callable[[Answer], bool]:
    look = _at(path)
    return lambda answer: value in look(answer)


def _lacks(path: str, value: Any) -> Callable[[Answer], bool]:
    look = _at(path)
    return lambda answer: value not in look(answer)


_DS: Final = ("deepspeed", "0.19.8")
_HF: Final = ("trainer", "5.23.0")
_ACC: Final = ("accelerate", "1.15.0")
_OLD_ACC: Final = ("accelerate", "0.30.1")
_TRL: Final = ("trl", "1.16.0")
_ST: Final = ("simpletuner", "4.10.1")
_OLD_ST: Final = ("simpletuner", "3.1.6")
_AXO: Final = ("axolotl", "0.19.0")
_LF: Final = ("llamafactory", "0.9.5")

_WITHOUT_ZERO: Final = "specify the ZeRO optimization config"
_NOT_USED: Final = "not used by the HfArgumentParser"
_MISMATCH: Final = "mismatch TrainingArguments values"

REFUSED: Final = (
    # ── DeepSpeed ────────────────────────────────────────────────────────────────────────────────
    Proof("auto-in-plain-deepspeed", 0, *_DS, "'>' not supported between instances of 'str'"),
    Proof("batch-not-divisible", 0, *_DS, "Micro batch size per gpu: 0 has to be greater than 0"),
    Proof("batch-not-divisible", 1, *_DS, "20 != 2 * 2 * 4"),
    Proof("batch-product-mismatch", 0, *_DS, "8 != 2 * 1 * 1"),
    Proof("batch-product-mismatch", 0, "deepspeed", "0.14.5", "8 != 2 * 1 * 1"),
    Proof("batch-size-left-out", 1, *_DS, "Either train_batch_size or train_micro_batch_size"),
    Proof("deepspeed-scheduler-incomplete", 0, *_DS, "total_num_steps"),
    Proof("deepspeed-scheduler-unknown", 0, *_DS, "does not recognize LR scheduler cosine"),
    Proof("fp16-and-bf16", 1, *_DS, "cannot be simultaneously enabled"),
    Proof("gradient-dtype-without-zero", 0, *_DS, "unsupported mix of"),
    Proof("gradient-dtype-without-zero", 0, "deepspeed", "0.18.9", "unsupported mix of"),
    Proof("half-master-weights-without-zero", 0, *_DS, "only supported with ZeRO Stage 1, 2, or 3"),
    Proof("loss-scale-under-bf16", 0, *_DS, "Extra inputs are not permitted"),
    Proof("misplaced-key", 0, *_DS, "Extra inputs are not permitted"),
    Proof("number-as-text", 0, *_DS, "'>' not supported between instances of 'str'"),
    Proof("offloaded-optimizer-of-the-client", 0, *_DS, "ZeRO-Offload"),
    Proof("optimizer-type-unknown", 0, *_DS, "is not a supported DeepSpeed Optimizer"),
    Proof("optimizer-type-unknown", 1, *_DS, "is not a supported DeepSpeed Optimizer"),
    Proof("partial-offload-below-stage-3", 0, *_DS, "only supported for ZeRO Stage 3"),
    Proof("unknown-key", 1, *_DS, "Extra inputs are not permitted"),
    Proof("untested-optimizer", 0, *_DS, "untested ZeRO Optimizer"),
    Proof("value-of-another-type", 0, *_DS, "a number with a fractional part"),
    Proof("value-out-of-range", 0, *_DS, "Input should be 0, 1, 2, 3"),
    Proof("warmup-of-zero-steps", 0, *_DS, "warmup_num_steps"),
    Proof("amp-beside-zero", 0, "deepspeed", "0.16.9", "Amp and ZeRO are not currently compatible"),
    Proof("bf16-without-hardware", 1, *_DS, "Type bf16 is not supported on your device"),
    Proof("fp16-refused-by-deepspeed", 0, *_DS, "Type fp16 is not supported on your device"),
    Proof("hpz-group-uneven", 0, "engine", "0.19.8", "12 is not divisible by 8"),
    Proof("muon-needs-whole-gradients", 0, "engine", "0.19.8", "cannot be used together"),
    Proof("block-without-its-switch", 0, "deepspeed", "0.18.9", "KeyError: 'enabled'"),
    Proof("optimizer-parameter-refused", 0, *_DS, "unexpected keyword argument 'epsilon'"),
    Proof("optimizer-parameter-refused", 1, "deepspeed", "0.14.5", "keyword argument 'fused'"),
    Proof("optimizer-parameter-refused", 2, *_DS, "unexpected keyword argument 'betas'"),
    Proof("section-without-type", 2, "engine", "0.19.8", "stage 2 requires an optimizer"),
    Proof("tensor-parallel-under-zero-3", 0, "engine", "0.17.6", "has not been validated"),
    Proof("loss-scale-refused", 0, *_DS, "min_loss_scale must be > 0"),
    Proof("loss-scale-refused", 1, *_DS, "loss_scale must be >= 0"),
    Proof("deepspeed-schedule-number-refused", 0, *_DS, "must be a positive integer"),
    Proof("keys-refused-together", 0, *_DS, "is not supported with ZeRO stage 3"),
    Proof("keys-refused-together", 2, *_DS, "compute_grad_norm=false is supported only"),
    # ── TrainingArguments, and the ds_config beside them ─────────────────────────────────────────
    Proof("auto-buckets-need-hidden-size", 0, "trainer", "4.44.2", "nor `hidden_sizes` entry"),
    Proof("value-of-another-type", 1, *_HF, "not supported between instances of 'NoneType'"),
    Proof("value-of-another-type", 1, "trainer", "4.57.6", "not supported between instances"),
    Proof("best-model-cadence", 0, *_HF, "round multiple"),
    Proof("best-model-cadence", 1, *_HF, "save and eval strategy to match"),
    Proof("bf16-without-hardware", 0, *_HF, "doesn't support bf16/gpu"),
    Proof("tf32-without-hardware", 0, *_HF, "--tf32 requires Ampere"),
    Proof("deepspeed-and-trainer-differ", 0, *_HF, _MISMATCH),
    Proof("deepspeed-and-trainer-differ", 1, *_HF, _MISMATCH),
    Proof("deepspeed-and-trainer-differ", 2, *_HF, _MISMATCH),
    Proof("deepspeed-and-trainer-differ", 0, "trainer", "4.44.2", _MISMATCH),
    Proof("schedule-and-trainer-differ", 0, *_HF, _MISMATCH),
    Proof("schedule-and-trainer-differ", 1, *_HF, _MISMATCH),
    Proof("fp16-and-bf16", 0, *_HF, "At most one of fp16 and bf16"),
    Proof("fsdp-loads-without-sync", 2, "trainer", "4.51.3", "`sync_module_states` must be"),
    Proof("fsdp-strategy-refused", 2, "trainer", "4.51.3", "is not a valid FSDPOption"),
    Proof("fsdp-strategy-refused", 3, *_HF, "is only available with FSDP1"),
    Proof("fsdp-two-wrap-policies", 0, "trainer", "4.51.3", "are mutually exclusive"),
    Proof("interval-refused", 0, *_HF, "requires non-zero --logging_steps"),
    Proof("interval-refused", 1, "trainer", "4.57.6", "must lie in range [0,1]"),
    Proof("interval-refused", 2, *_HF, "must be an integer if bigger than 1"),
    Proof("key-of-another-release", 0, *_HF, _NOT_USED),
    Proof("key-of-another-release", 1, "trainer", "4.40.2", _NOT_USED),
    Proof("missing-file", 0, *_HF, "path to an existing deepspeed config"),
    Proof("no-read-as-false", 0, *_HF, "False is not a valid"),
    Proof("plateau-without-evaluation", 0, *_HF, "requires an eval strategy"),
    Proof("unknown-key", 2, *_HF, _NOT_USED),
    Proof("value-out-of-range", 1, *_HF, "is not a valid SchedulerType"),
    Proof("workers-missing", 1, *_HF, "--dataloader_prefetch_factor"),
    # ── accelerate ───────────────────────────────────────────────────────────────────────────────
    Proof("deepspeed-file-without-zero", 0, *_ACC, _WITHOUT_ZERO),
    Proof("deepspeed-file-without-zero", 0, *_OLD_ACC, _WITHOUT_ZERO),
    Proof("distributed-type-missing", 0, *_ACC, "`distributed_type` must be specified"),
    Proof("fsdp-activation-offload-refused", 0, *_ACC, "requires `activation_checkpointing=True`"),
    Proof("fsdp-loads-without-sync", 0, *_ACC, "fsdp_sync_module_states"),
    Proof("fsdp-loads-without-sync", 1, *_ACC, "fsdp_sync_module_states"),
    Proof("fsdp-reshard-refused", 0, *_ACC, "invalid truth value full_shard"),
    Proof("fsdp-state-dict-refused", 0, *_ACC, "FSDP2 does not support LOCAL_STATE_DICT"),
    Proof("fsdp-state-dict-refused", 1, *_ACC, "SHARDED"),
    Proof("fsdp-strategy-refused", 0, *_ACC, "ZERO3"),
    Proof("fsdp-strategy-refused", 1, *_ACC, "is not a valid ShardingStrategy"),
    Proof("key-of-none", 1, *_ACC, "had unknown keys"),
    Proof("word-of-none", 0, *_ACC, "is not a valid DistributedType"),
    Proof("word-of-none", 1, *_ACC, "Unknown mixed_precision mode"),
    Proof("keys-beside-deepspeed-file", 0, *_ACC, "config variables will be ignored"),
    Proof("one-device-for-multi-gpu", 0, *_ACC, "Less than two GPU ids"),
    # ── TRL ──────────────────────────────────────────────────────────────────────────────────────
    Proof("field-of-another-release", 0, *_TRL, "Unknown arguments from config file"),
    Proof("trl-pair-of-some-releases", 4, "trl", "0.28.0", "two-sided GRPO loss"),
    Proof("field-of-another-release", 2, "trl", "0.12.2", "not used by the TrlParser"),
    Proof("four-and-eight-bits", 0, *_TRL, "8 bit and 4 bit precision at the same time"),
    Proof("generation-batch-given-twice", 0, *_TRL, "can not be both configured"),
    Proof("generations-do-not-divide", 0, *_TRL, "must be divisible by num_generations"),
    Proof("generations-do-not-divide", 1, *_TRL, "at least 2 generations per prompt"),
    Proof("key-of-another-tool", 2, *_TRL, "Unknown arguments from config file"),
    Proof("loss-weights-differ", 0, *_TRL, "must have the same length as `loss_type`"),
    # ── LLaMA-Factory ────────────────────────────────────────────────────────────────────────────
    Proof("field-of-another-release", 1, *_LF, _NOT_USED),
    Proof("full-fine-tune-of-quantised-base", 1, *_LF, "only compatible with the LoRA or OFT"),
    Proof("key-of-another-tool", 1, *_LF, _NOT_USED),
    Proof("key-of-no-release", 0, *_LF, _NOT_USED),
    Proof("lora-options-of-another-method", 0, *_LF, "is only valid for LoRA training"),
    Proof("lora-options-of-another-method", 1, *_LF, "Cannot use LoRA with GaLore"),
    Proof("misspelt-key", 1, *_LF, _NOT_USED),
    Proof("merge-into-quantised-base", 0, *_LF, "Cannot merge adapters to a quantized model"),
    Proof("pixel-bounds-crossed", 0, *_LF, "cannot be smaller than `image_min_pixels`"),
    Proof("refused-beside-quantisation", 0, *_LF, "to initialize PiSSA for a quantized model"),
    Proof("refused-outside-its-stage", 0, *_LF, "cannot be set as True except SFT"),
    Proof("pure-bf16-refused", 1, *_LF, "`pure_bf16` is incompatible with DeepSpeed ZeRO-3"),
    Proof("quantised-base-under-zero-3", 1, *_LF, "is incompatible with PTQ-quantized models"),
    Proof("validation-split-refused", 0, *_LF, "Cannot specify `val_size`"),
    # ── Axolotl ──────────────────────────────────────────────────────────────────────────────────
    Proof("fp8-without-hardware", 1, *_AXO, "fp8"),
    Proof("full-fine-tune-of-quantised-base", 2, *_AXO, "without setting an adapter"),
    Proof("kto-needs-every-column", 0, *_AXO, "Set `remove_unused_columns: False`"),
    Proof("qlora-not-in-four-bits", 0, *_AXO, "Require cfg.load_in_4bit to be True"),
    Proof("qlora-not-in-four-bits", 1, *_AXO, "Can't load qlora in 8bit"),
    Proof("refused-pair", 0, *_AXO, "mutually exclusive"),
    Proof("deepspeed-without-torchrun", 0, *_LF, "FORCE_TORCHRUN=1"),
    Proof("refused-pair", 1, *_AXO, "does not work with RLHF training"),
    # ── SimpleTuner ──────────────────────────────────────────────────────────────────────────────
    Proof("checkpointing-interval-unusable", 0, *_ST, "interval must be greater than 0"),
    Proof("flag-not-known", 0, *_ST, "invalid"),
    Proof("flag-not-known", 1, *_ST, "expected one argument"),
    Proof("flag-not-known", 2, *_ST, "unrecognized arguments"),
    Proof("flag-not-known", 3, *_ST, "unrecognized arguments"),
    Proof("data-set-at-odds", 0, *_ST, "caption_strategy must be set to 'huggingface'"),
    Proof("data-set-at-odds", 1, *_ST, "greater than or equal to video->num_frames"),
    Proof("data-set-at-odds", 2, *_ST, "split_on must be one of"),
    Proof("data-set-incomplete", 0, *_ST, "requires instance_data_dir"),
    Proof("data-set-incomplete", 0, *_OLD_ST, "requires instance_data_dir"),
    Proof("data-set-incomplete", 1, *_ST, "Missing required key 'dataset_name'"),
    Proof("data-set-incomplete", 2, *_ST, "requires a 'parquet' field"),
    Proof("data-sets-never-trained", 0, *_ST, "available at the start of training"),
    Proof("data-sets-share-a-cache", 2, *_ST, "needs a unique 'id' field"),
    Proof("flags-at-odds", 2, *_ST, "Quanto kernels do not register DTensor"),
    Proof("flags-at-odds", 3, *_ST, "quantize_via=pipeline cannot be combined"),
    Proof("flags-at-odds", 4, *_ST, "skip-layer guidance is not supported"),
    Proof("sageattention-of-nf4", 0, *_OLD_ST, "is not supported with SageAttention"),
    Proof("lycoris-config-unusable", 0, *_ST, "must contain multiplier key"),
    Proof("averaged-weights-not-possible", 0, *_ST, "init_lora_ema requires"),
    Proof("data-folder-is-a-file", 0, *_ST, "dataset directories do not exist"),
    Proof("flow-shift-given-twice", 0, *_OLD_ST, "cannot be combined with --flow_schedule_shift"),
    Proof("flow-shift-given-twice", 1, *_OLD_ST, "cannot be combined with --flow_schedule_shift"),
    Proof("full-fine-tune-of-quantised-base", 0, *_ST, "not compatible with quantisation"),
    Proof("lora-with-deepspeed", 0, *_ST, "LoRA can not be trained with DeepSpeed"),
    Proof("maximum-size-without-target", 0, *_ST, "--target_downsample_size"),
    Proof("one-beta-alone", 0, *_ST, "Both --optimizer_beta1 and --optimizer_beta2"),
    Proof("conditioning-data-missing", 0, *_ST, "conditioning_data string should be configured"),
    Proof("flag-without-its-partner", 0, *_ST, "--validation_external_script is required"),
    Proof("flag-without-its-partner", 3, *_ST, "--disk_low_script is required"),
    Proof("flavour-of-another-family", 0, *_ST, "Model flavour turbo not found"),
    Proof("flavour-of-another-family", 1, *_ST, "Model flavour 1.0 not found"),
    Proof("optimizer-config-unreadable", 0, *_ST, "could not convert string to float"),
    Proof("optimizer-config-unreadable", 1, *_ST, "could not convert string to float"),
    Proof("refused-by-the-family", 0, *_ST, "does not support fp8-quanto"),
    Proof("refused-by-the-family", 1, *_ST, "SystemExit"),
    Proof("required-flag-missing", 0, *_ST, "arguments are required: --output_dir"),
    Proof("required-flag-missing", 1, *_ST, "arguments are required: --model_family"),
    Proof("size-limit-refused", 0, *_ST, "maximum_image_size must be at least 512 pixels"),
    Proof("size-limit-refused", 1, *_ST, "--target_downsample_size must be less than 5 megapixels"),
    Proof("refused-beside-lycoris", 0, *_ST, "train_text_encoder"),
    Proof("refused-beside-quantisation", 1, *_ST, "fp8 with a quantized base model"),
    Proof("word-not-taken", 1, *_ST, "Optimizer adam_bfloat16 not found"),
)

SEEN: Final = (
    # ── DeepSpeed ────────────────────────────────────────────────────────────────────────────────
    Proof("misplaced-key", 1, *_DS, shows=_has("ignored", "overlap_comm")),
    Proof("unknown-key", 0, *_DS, shows=_has("ignored", "gradient_clipp1ng")),
    Proof("section-without-type", 0, *_DS, shows=_is("values/scheduler.type", None)),
    Proof("static-loss-scale", 0, *_DS, shows=_is("values/fp16.loss_scale", 1.0)),
    Proof("zero-stage-left-out", 0, *_DS, shows=_is("values/zero_optimization.stage", 0)),
    Proof("default-moved", 0, "deepspeed", "0.18.9", shows=_is("values/gradient_clipping", 0.0)),
    Proof("default-moved", 0, *_DS, shows=_is("values/gradient_clipping", 1.0)),
    Proof("boolean-as-text", 1, *_DS, shows=_is("values/zero_allow_untested_optimizer", "False")),
    Proof("timers-left-on", 0, *_DS, shows=_is("values/wall_clock_breakdown", True)),
    Proof("flops-profiler-left-on", 0, *_DS, shows=_is("values/flops_profiler.enabled", True)),
    Proof(
        "offload-without-pinned-memory",
        0,
        *_DS,
        shows=_is("values/zero_optimization.offload_optimizer.pin_memory", False),
    ),
    Proof(
        "resume-from-rounded-weights",
        0,
        *_DS,
        shows=_is("values/zero_optimization.load_from_fp32_weights", False),
    ),
    # ── TrainingArguments, and the ds_config beside them ─────────────────────────────────────────
    Proof("automatic-precision-off", 0, *_HF, shows=_is("deepspeed/bf16/enabled", False)),
    Proof("automatic-precision-off", 0, *_HF, shows=_is("deepspeed/fp16/enabled", False)),
    Proof("full-eval-turns-half-on", 0, *_HF, shows=_is("deepspeed/fp16/enabled", True)),
    Proof(
        "checkpointing-options-ignored", 0, *_HF, shows=_is("values/gradient_checkpointing", False)
    ),
    Proof("clipping-left-out", 0, *_HF, shows=_lacks("deepspeed", "gradient_clipping")),
    Proof("optimizer-overridden", 0, *_HF, shows=_is("deepspeed/optimizer/type", "AdamW")),
    Proof("scheduler-overridden", 0, *_HF, shows=_is("deepspeed/scheduler/type", "WarmupLR")),
    Proof(
        "weights-not-gathered-on-save",
        0,
        *_HF,
        shows=_is("deepspeed/zero_optimization", {"stage": 3}),
    ),
    Proof("optimizer-given-twice", 0, "trainer", "4.51.3", shows=_is("values/optim", "adafactor")),
    Proof("hub-keys-without-push", 0, *_HF, shows=_is("values/push_to_hub", False)),
    Proof("nothing-is-reported", 0, *_HF, shows=_is("values/report_to", [])),
    Proof("interval-without-strategy", 0, *_HF, shows=_is("values/eval_strategy", "no")),
    Proof("fsdp-config-without-fsdp", 0, *_HF, shows=_is("values/fsdp", None)),
    # ── accelerate ───────────────────────────────────────────────────────────────────────────────
    Proof("config-of-another-engine", 0, *_ACC, shows=_is("plugin", None)),
    Proof("flag-overridden-by-file", 0, *_OLD_ACC, shows=_is("arguments/zero_stage", 2)),
    Proof("processes-without-engine", 0, *_ACC, shows=_is("torchrun/nproc_per_node", None)),
    Proof("zero-3-init-below-stage-3", 0, *_ACC, shows=_is("plugin/zero3_init_flag", False)),
    Proof("machines-without-hostfile", 0, *_ACC, shows=_is("arguments/deepspeed_hostfile", None)),
    Proof("text-encoders-under-zero-3-init", 0, *_ACC, shows=_is("plugin/zero3_init_flag", True)),
    Proof("world-size-differs", 0, *_ACC, shows=_is("torchrun/nproc_per_node", "8")),
    # ── TRL ──────────────────────────────────────────────────────────────────────────────────────
    Proof(
        "section-key-unread",
        0,
        *_AXO,
        shows=lambda answer: "'num_generation'" not in answer["values"]["trl"],
    ),
    Proof("clip-bounds-crossed", 0, *_TRL, shows=_is("values/epsilon_high", 0.1)),
    Proof("trl-option-unread", 0, *_TRL, shows=_is("values/packing", False)),
    Proof("trl-option-unread", 1, *_TRL, shows=_is("values/sync_ref_model", False)),
    Proof("lora-keys-without-adapter", 0, *_TRL, shows=_is("adapter", None)),
    Proof("quantization-options-ignored", 0, *_TRL, shows=_is("quantization", None)),
    Proof(
        "four-bits-computed-in-fp32",
        0,
        *_TRL,
        shows=_is("quantization/bnb_4bit_compute_dtype", "float32"),
    ),
    Proof(
        "four-bits-computed-in-fp32",
        1,
        *_TRL,
        shows=_is("quantization/bnb_4bit_compute_dtype", "float32"),
    ),
    Proof(
        "quantised-compute-differs",
        0,
        *_TRL,
        shows=_is("quantization/bnb_4bit_compute_dtype", "float16"),
    ),
    Proof("vllm-keys-without-vllm", 0, *_TRL, shows=_is("values/use_vllm", False)),
    # ── LLaMA-Factory ────────────────────────────────────────────────────────────────────────────
    Proof(
        "checkpointing-not-turned-off",
        0,
        *_LF,
        shows=_is("values/disable_gradient_checkpointing", False),
    ),
    Proof("shifted-attention-ignored", 0, *_LF, shows=_lacks("model", "group_size_ratio")),
    Proof("rope-scaling-without-need", 0, *_LF, shows=_is("model/rope_scaling", None)),
    Proof("experts-without-balancing", 0, *_LF, shows=_is("values/moe_aux_loss_coef", None)),
    Proof("packing-lets-samples-mix", 0, *_LF, shows=_is("values/neat_packing", False)),
    Proof("quantization-options-ignored", 1, *_LF, shows=_is("values/quantization_bit", None)),
    Proof("option-of-another-choice", 0, *_LF, shows=_is("values/finetuning_type", "lora")),
    Proof("template-of-another-family", 0, *_LF, shows=_is("values/template", "llama3")),
    Proof("word-not-taken", 0, *_LF, shows=_is("values/flash_attn", "flash_attention_2")),
    # ── Axolotl ──────────────────────────────────────────────────────────────────────────────────
    Proof(
        "data-set-key-unread",
        0,
        *_AXO,
        shows=lambda a: "train_on_split" not in str(a["values"]["datasets"]),
    ),
    Proof("option-without-its-plugin", 0, *_AXO, shows=_lacks("values", "liger_rope")),
    Proof("key-of-another-tool", 0, *_AXO, shows=_lacks("values", "num_train_epochs")),
    Proof("misspelt-key", 0, *_AXO, shows=_lacks("values", "gradient_acumulation_steps")),
    Proof("key-of-no-release", 1, *_AXO, shows=_lacks("values", "epochs")),
    Proof("field-of-another-release", 3, *_AXO, shows=_lacks("values", "relora_steps")),
    Proof("number-as-text", 4, "llamafactory", "0.9.3", shows=_is("values/learning_rate", "1e-4")),
    Proof("lora-keys-without-adapter", 1, *_AXO, shows=_lacks("values", "adapter")),
    Proof(
        "token-mended-and-frozen",
        0,
        *_AXO,
        shows=lambda a: (
            a["values"]["fix_untrained_tokens"] != a["values"]["peft_trainable_token_indices"]
        ),
    ),
    # ── SimpleTuner ──────────────────────────────────────────────────────────────────────────────
    Proof(
        "fp8-quanto-replaced",
        0,
        *_ST,
        shows=_is("arguments/base_model_precision", "int8-quanto"),
    ),
    Proof("key-of-another-objective", 0, *_ST, shows=_is("parsed/snr_gamma", 5)),
    Proof(
        "gradient-precision-ignored", 0, *_ST, shows=_is("parsed/gradient_precision", "unmodified")
    ),
    Proof(
        "optimizer-replaced-under-deepspeed",
        0,
        *_ST,
        shows=_is("deepspeed/optimizer/type", "AdamW"),
    ),
    Proof("false-is-dropped", 0, *_ST, shows=_is("parsed/gradient_checkpointing", True)),
    Proof("flags-without-effect", 4, *_ST, shows=_lacks("parsed", "repeats")),
    Proof("variable-of-no-flag", 0, *_ST, shows=_is("parsed/lora_rank", 16)),
    Proof("overridden-by-the-family", 0, *_ST, shows=_is("family/aspect_bucket_alignment", 64)),
    Proof(
        "key-of-no-data-set",
        0,
        *_ST,
        shows=lambda a: a["data"]["backends"][0]["config"]["caption_strategy"] == "filename",
    ),
    Proof("section-passed-over", 1, *_ST, shows=_is("parsed/train_batch_size", 4)),
    Proof("fp16-in-simpletuner", 0, *_ST, shows=_is("parsed/weight_dtype", "float16")),
    Proof("optimizer-of-bf16-only", 0, *_ST, shows=_is("parsed/weight_dtype", "float16")),
    Proof(
        "text-embeds-missing",
        0,
        *_OLD_ST,
        shows=lambda a: "at least a text_embed" in str(a["data"]["rules"]),
    ),
    Proof(
        "text-embeds-missing",
        1,
        *_OLD_ST,
        shows=lambda a: "no default text embed" in str(a["data"]["rules"]),
    ),
)
