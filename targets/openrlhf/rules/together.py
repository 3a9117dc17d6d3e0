"""Flags that OpenRLHF refuses together, or that have no effect beside others."""

from typing import Final

from tunec.compiler.lints.rows import Form, Row, rows
from tunec.schemas.frozen import replace

_ASSERTION: Final = "AssertionError before the model is loaded"


_BOTH: Final = "openrlhf|openrlhf-rm"
_without: Final = Form("openrlhf", "--{0.path} requires --{1.path}", lacks=True)
_refused: Final = Form("openrlhf", "--{0.path} cannot be combined with --{1.path} {1.value}")
_FP16: Final = "ds.param_dtype=fp16"
_BF16: Final = "write --ds.param_dtype bf16"


OPENRLHF_FLAGS_CLASH: Final = rows(
    "openrlhf-flags-clash",
    "error",
    "init",
    consumers=("openrlhf",),
    rows=(
        _without(
            "data.multiturn=true",
            "data.apply_chat_template=true",
            _ASSERTION,
            "write --data.apply_chat_template",
        ),
        replace(_without, kind=_BOTH)(
            "ds.ring_attn_size>1",
            "ds.packing_samples=true",
            _ASSERTION,
            "write --ds.packing_samples",
        ),
        replace(_refused, kind=_BOTH)(
            "ds.load_in_4bit=true", _FP16, "a base in 4 bits is only expanded to bf16", _BF16
        ),
        _refused(
            "ds.tensor_parallel_size>1",
            _FP16,
            "BF16 is required for tensor parallel training",
            _BF16,
        ),
        Row(
            "openrlhf:ds.zero_stage>3",
            "ZeRO has no stage {0.value}",
            "refused",
            "DeepSpeed's configuration takes 0 to 3",
            "write 0, 1, 2 or 3",
        ),
        Row(
            "openrlhf:ds.zero_stage<0",
            "ZeRO has no stage {0.value}",
            "refused",
            "DeepSpeed's configuration takes 0 to 3",
            "write 0, 1, 2 or 3",
        ),
        Row(
            "openrlhf:lr_scheduler=warmup_stable_decay",
            "--{0.path} {0.value} is refused",
            "refused",
            "no flag holds the number of its last steps, which transformers requires",
            "write cosine or linear",
        ),
        Row(
            "openrlhf:lr_scheduler!=linear|cosine|cosine_with_restarts|polynomial|constant|"
            "constant_with_warmup|inverse_sqrt|reduce_lr_on_plateau|cosine_with_min_lr|"
            "cosine_warmup_with_min_lr|warmup_stable_decay|greedy",
            "--{0.path} {0.value} is no schedule of transformers",
            "refused",
            "transformers' get_scheduler looks it up among its own",
            "write cosine_with_min_lr, or another that it has",
        ),
    ),
)


_needs: Final = Form(
    "openrlhf", "--{0.path} does nothing here", "not read", lacks=True, at_key=True
)
_beside: Final = Form(
    "openrlhf", "--{0.path} does nothing beside --{1.path}", "not read", at_key=True
)
_ADAPTED: Final = "the whole model is trained: --ds.lora.rank is 0 by default"
_SHARDED: Final = "it is read at stage 3, and 2 is the default"
FLAG_UNREAD_BY_OPENRLHF: Final = rows(
    "flag-unread-by-openrlhf",
    "warning",
    "silent",
    consumers=("openrlhf",),
    rows=(
        *(
            _needs(f"ds.lora.{name}", "ds.lora.rank>0", _ADAPTED, "also write --ds.lora.rank")
            for name in ("alpha", "dropout", "target_modules")
        ),
        *(
            _needs(f"muon.{name}", "optim=muon", "AdamW runs by default", "write --optim muon")
            for name in ("lr", "momentum")
        ),
        Row(
            "openrlhf:muon.ns_steps|muon.no_nesterov?",
            "--{0.path} does nothing",
            "not read",
            "DeepSpeed's Muon has 5 steps and Nesterov's momentum, whatever is configured",
            "remove it",
            at_key=True,
        ),
        _needs(
            "ds.zpg>1",
            "ds.zero_stage=3",
            f"there is no secondary partition: {_SHARDED}",
            "write --ds.zero_stage 3, or remove it",
        ),
        _needs(
            "ref.offload=true",
            "ds.zero_stage=3",
            f"the reference stays on the device: {_SHARDED}",
            "write --ds.zero_stage 3, or remove it",
        ),
        _needs(
            "model.gradient_checkpointing_reentrant=true",
            "model.gradient_checkpointing_enable=true",
            "nothing is recomputed",
            "also write --model.gradient_checkpointing_enable",
        ),
        _needs(
            "min_lr_ratio & lr_scheduler!=cosine_with_min_lr|cosine_warmup_with_min_lr",
            "lr_scheduler=cosine_with_min_lr|cosine_warmup_with_min_lr",
            "only cosine_with_min_lr and cosine_warmup_with_min_lr get a minimum rate",
            "write --lr_scheduler cosine_with_min_lr, or remove it",
        ),
        _needs("eval.steps>0", "eval.dataset", "there is nothing to evaluate", "remove it"),
        _beside(
            "data.input_template",
            "data.apply_chat_template=true",
            "the chat template replaces it",
            "remove it",
        ),
        _beside(
            "logger.tensorboard_dir",
            "logger.wandb.key",
            "TensorBoard is only used without wandb",
            "remove one of the two",
        ),
        _beside(
            "model.label_smoothing>0",
            "model.ipo_enable=true",
            "the loss of IPO has no label smoothing",
            "remove one of the two",
        ),
        Row(
            "openrlhf:ds.attn_implementation=eager|sdpa|flex_attention",
            "--{0.path} {0.value} is not used beside --{1.path}",
            "FlashAttention 2 runs",
            "only FlashAttention keeps joined samples apart, so it is used instead",
            "write flash_attention_2, or remove --ds.packing_samples",
            beside=("ds.packing_samples=true",),
        ),
        _needs(
            "ds.load_in_4bit=true",
            "ds.lora.rank>0",
            "a base in 4 bits takes no gradient, and only what is not quantised is trained",
            "also write --ds.lora.rank",
        ),
    ),
)
