"""NeMo AutoModel's keys without a slot: what other trainers do instead."""

from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Moved, gone, gone_unless, only_here
from tunec.targets.nemo_automodel.packages import SOURCE

_RECIPE: Final = f"{SOURCE} recipes/llm/train_ft.py"
_COLLATER: Final = "nemo_automodel.components.datasets.utils.default_collater"
_NOTHING: Final = (None, False, "", "none")


def _other(key: str, instead: str, *same: Any) -> Moved:
    """A key that other trainers lack, and what they do instead; values `same` change nothing."""
    return gone_unless(key, _RECIPE, instead, *same)


LEAVES: Final = (
    _other(
        "recipe", "the trainer is named by its command", "TrainFinetuneRecipeForNextTokenPrediction"
    ),
    _other("model.force_hf", "the model's class is transformers'", True, False),
    _other("model.use_liger_kernel", "kernels are said apart", True, False),
    _other("model.use_sdpa_patching", "torch chooses the kernel of its attention", True, False),
    _other("peft.use_triton", "adapters run torch's own products", True, False),
    _other("peft.use_memory_efficient_lora", "adapters are PEFT's", True, False),
    _other("peft.lora_dtype", "adapters have the dtype that PEFT gives them", None),
    _other("peft.dropout_position", "dropout is on an adapter's input", "pre"),
    _other("peft.exclude_modules", "the targets say which layers are adapted", []),
    _other("peft.match_all_linear", "the targets say which layers are adapted", False),
    _other("distributed.dp_size", "processes say it", *_NOTHING),
    _other("distributed.sequence_parallel", "nothing is split beside tensors", *_NOTHING),
    _other(
        "distributed._target_",
        "the engine is named",
        "nemo_automodel.components.distributed.fsdp2.FSDP2Manager",
    ),
    _other(
        "distributed.defer_fsdp_grad_sync",
        "gradients are summed where they are reduced",
        True,
        False,
    ),
    _other("dataset.shuffle_seed", "the seed of the run shuffles", None),
    _other("dataset.padding", "batches are padded to their longest", "do_not_pad", False),
    _other("dataset.truncation", "longer samples are cut", True),
    _other("dataset.limit_dataset_samples", "all samples are read", None),
    _other("validation_dataset.limit_dataset_samples", "all of the part is evaluated"),
    _other("validation_dataset.seq_length", "held-out samples are cut like others"),
    _other("validation_dataset.truncation", "held-out samples are cut like others", True),
    _other(
        "validation_dataset.padding", "batches are padded to their longest", "do_not_pad", False
    ),
    _other(
        "dataloader._target_",
        "the loader is the trainer's own",
        "torchdata.stateful_dataloader.StatefulDataLoader",
    ),
    *(
        _other(f"dataloader.{key}", "batches are padded to their longest", _COLLATER)
        for key in ("collate_fn", "collate_fn._target_")
    ),
    _other("dataloader.shuffle", "samples are shuffled", True, None),
    gone("dist_env", _RECIPE, "processes meet as torchrun lets them"),
    _other("lr_scheduler.lr_decay_steps", "the rate falls until the last step", None),
    gone("rng", _RECIPE, "nothing reads this section: the seed is `seed`, at the top"),
    _other("checkpoint.enabled", "checkpoints are written", True),
    _other("checkpoint.model_save_format", "weights are safetensors", "safetensors"),
    _other(
        "checkpoint.save_consolidated",
        "checkpoints are in transformers' form",
        True,
        False,
        "final",
        "every",
        "false",
    ),
    _other("checkpoint.dequantize_base_checkpoint", "the base is read as it is", *_NOTHING),
    _other("model.torch_dtype", "the model keeps the dtype that its config says", "auto"),
    _other("loss_fn._target_", "the loss is the trainer's own code for the same"),
    _other("loss_fn.fp32_upcast", "logits are fp32 in the loss", True),
    _other("optimizer.foreach", "torch chooses how its optimizer runs", True, False, None),
    _other("step_scheduler.gc_every_steps", "Python collects its garbage by itself"),
    gone("dataset.tokenizer", _RECIPE, "the tokenizer is the model's"),
    gone("validation_dataset.tokenizer", _RECIPE, "the tokenizer is the model's"),
    gone("tokenizer", _RECIPE, "the tokenizer is the model's"),
    *(
        _other(f"{section}.{key}", instead, *same)
        for section in ("dataset", "validation_dataset")
        for key, instead, *same in (
            ("num_samples_limit", "all samples are read", None),
            ("pad_to_max_length", "batches are padded to their longest", False),
            ("answer_only_loss_mask", "which tokens count is the trainer's", True),
            ("chat_template", "the tokenizer's own template holds", *_NOTHING),
            ("start_of_turn_token", "which tokens count is the trainer's", None),
        )
    ),
    gone("validation_dataloader", _RECIPE, "held-out data is dealt as the trainer deals it"),
    *(
        only_here(key, _RECIPE, why)
        for key, why in (
            ("model.backend", "kernels and experts of its own model classes run nowhere else"),
            ("distributed.pp_size", "no other program that is written splits a model into stages"),
            ("distributed.ep_size", "no other program that is written spreads experts"),
            ("distributed.pipeline", "no other program that is written splits a model into stages"),
            ("distributed.moe", "no other program that is written spreads experts"),
            ("fp8", "products in fp8 are not planned"),
            ("qat", "training for a later quantisation is not planned"),
        )
    ),
    _other("compile.enabled", "nothing is compiled", False),
    gone("compile", _RECIPE, "nothing is compiled"),
    gone("ci", _RECIPE, "its own tests read this section"),
)
"""What is done without each of these keys."""
