"""LLaMA-Factory's keys that have no equivalent in other programs, with the reason."""

from typing import Final

from tunec.compiler.consumers.moved_keys import only_here

_SOURCE: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py, model_args.py"
_TRAINING: Final = "llamafactory 0.9.3 to 0.9.5 hparams/training_args.py"
_MEGATRON: Final = "llamafactory 0.9.4 to 0.9.5 hparams/training_args.py `McaTrainingArguments`"

_OPTIMIZER: Final = (
    "it is an optimizer that LLaMA-Factory makes itself: the Trainer has no such one"
)
_LOSS: Final = "the loss is LLaMA-Factory's own: `trl sft` has nll and dft"
_FP8: Final = "products in FP8 are no dtype of the Trainer's arguments"
_ENGINE: Final = "it is an argument of Megatron, another engine than the Trainer's"
_EXPERTS: Final = "KTransformers computes experts on the host, which no other trainer does"
_LAYERS: Final = "some of the layers alone are trained: `trl sft` trains all weights or LoRA's"
_OFT: Final = "TRL's scripts make LoRA of PEFT's adapters alone: OFT needs a script of one's own"
_START: Final = "TRL's scripts have no key for how LoRA begins: PiSSA needs a script of one's own"
_RATES: Final = "the Trainer has one rate for all weights, and LoRA+ two"
_ODDS: Final = (
    "of other preference methods than DPO there is no plan; `trl` has scripts of their own"
)

_REASONS: Final = (
    (_OPTIMIZER, _SOURCE, ("use_adam_mini", "use_muon", "use_badam")),
    (_LOSS, _SOURCE, ("use_asft_loss", "asft_alpha", "use_eaft_loss", "eaft_alpha")),
    (
        _OPTIMIZER,
        _SOURCE,
        tuple(
            f"badam_{name}"
            for name in (
                *("mode", "start_block", "switch_mode", "switch_interval", "update_ratio"),
                *("mask_mode", "verbose"),
            )
        ),
    ),
    (_FP8, _TRAINING, ("fp8", "fp8_backend", "fp8_enable_fsdp_float8_all_gather")),
    (
        _LAYERS,
        _SOURCE,
        (
            *("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"),
            *("use_llama_pro", "mixture_of_depths"),
        ),
    ),
    (_OFT, _SOURCE, ("oft_rank", "oft_block_size", "oft_target", "module_dropout")),
    (_START, _SOURCE, ("pissa_init", "pissa_iter", "pissa_convert")),
    (_RATES, _SOURCE, ("loraplus_lr_ratio", "loraplus_lr_embedding")),
    (_EXPERTS, _SOURCE, ("use_kt", "kt_weight_path", "kt_use_lora_experts")),
    (
        _ENGINE,
        _MEGATRON,
        (
            *("tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size"),
            *("expert_model_parallel_size", "bias_activation_fusion", "apply_rope_fusion"),
            *("use_distributed_optimizer", "overlap_param_gather", "overlap_grad_reduce"),
            *("moe_grouped_gemm", "moe_token_dispatcher_type", "recompute_granularity"),
        ),
    ),
)
ONLY_HERE: Final = (
    *(only_here(name, source, why) for why, source, names in _REASONS for name in names),
    only_here("finetuning_type", _SOURCE, _OFT, "oft"),
    only_here("finetuning_type", _SOURCE, _LAYERS, "freeze"),
    only_here("stage", _SOURCE, _ODDS, "kto", "rm", "ppo"),
    only_here("pref_loss", _SOURCE, _ODDS, "orpo", "simpo"),
)
