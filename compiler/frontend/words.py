"""Other programs' names for the fields of a spec, for the help of an unknown field.

A spec states intents, but users write the names that they know. Each row gives a name of a consumer
and the field of a spec with its meaning.
"""

from collections.abc import Mapping
from typing import Final

from tunec.schemas.source import Path, dotted

FIELD_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    # transformers 5.23.0, training_args.py, TrainingArguments; older versions where noted
    "transformers.TrainingArguments": {
        "output_dir": "train.output",
        "num_train_epochs": "train.epochs",
        "max_steps": "train.steps",
        "per_device_train_batch_size": "pin.batch.micro",
        "per_device_eval_batch_size": "pin.batch.evaluation",
        "gradient_accumulation_steps": "pin.batch.accumulation",
        "lr_scheduler_type": "train.schedule",
        "warmup_steps": "train.warmup",
        "optim": "train.optimizer",
        "weight_decay": "train.optimizer.weight_decay",
        "adam_beta1": "train.optimizer.beta1",
        "adam_beta2": "train.optimizer.beta2",
        "adam_epsilon": "train.optimizer.epsilon",
        "max_grad_norm": "train.optimizer.max_grad_norm",
        "gradient_checkpointing": "pin.activation_checkpointing.mode",
        "bf16": "precision",
        "fp16": "precision",
        "tf32": "pin.precision.tf32",
        "logging_steps": "pin.schedule.log_steps",
        "save_steps": "pin.schedule.save_steps",
        "save_total_limit": "train.keep_checkpoints",
        "eval_steps": "pin.schedule.evaluation_steps",
        "dataloader_num_workers": "pin.runtime.dataloader_workers",
        "dataloader_pin_memory": "pin.runtime.dataloader_pin_memory",
        "report_to": "train.report_to",
        "run_name": "name",
        "save_strategy": "train.checkpoints",
        "eval_strategy": "train.evaluations",
        "use_liger_kernel": "pin.loss.path",
    },
    # peft 0.21.2, tuners/lora/config.py, LoraConfig
    "peft.LoraConfig": {
        "r": "method.lora.rank",
        "lora_alpha": "method.lora.alpha",
        "lora_dropout": "method.lora.dropout",
        "target_modules": "method.lora.targets",
        "target_parameters": "method.lora.experts",
        "modules_to_save": "method.lora.also_train",
        "use_rslora": "method.lora.rslora",
        "use_dora": "method.lora.dora",
    },
    # trl 1.16.0, trainer/dpo_config.py and grpo_config.py
    "trl": {
        "precompute_ref_log_probs": "objective.dpo.reference",
        "num_generations": "objective.grpo.samples",
        "max_completion_length": "objective.grpo.completion",
        "use_vllm": "objective.grpo.generator",
        "vllm_gpu_memory_utilization": "objective.grpo.device_share",
        "loss_type": "pin.loss.path",
    },
    # deepspeed 0.19.8, runtime/constants.py and runtime/zero/config.py
    "deepspeed": {
        "train_batch_size": "batch.global",
        "train_micro_batch_size_per_gpu": "pin.batch.micro",
        "gradient_clipping": "train.optimizer.max_grad_norm",
        "zero_optimization": "pin.zero.stage",
        "offload_param": "pin.zero.offload_param",
        "offload_optimizer": "pin.zero.offload_optimizer",
        "reduce_bucket_size": "pin.zero.reduce_bucket",
        "allgather_bucket_size": "pin.zero.allgather_bucket",
        "overlap_comm": "pin.zero.overlap_comm",
    },
    # transformers 5.23.0, utils/quantization_config.py, BitsAndBytesConfig
    "transformers.BitsAndBytesConfig": {
        "load_in_4bit": "method.qlora",
        "load_in_8bit": "method.int8_lora",
        "bnb_4bit_quant_type": "method.qlora.format",
        "bnb_4bit_use_double_quant": "method.qlora.double",
        "bnb_4bit_compute_dtype": "precision",
    },
    # axolotl and LLaMA-Factory, by the schemas of their newest releases in schemas/json
    "axolotl": {
        "sequence_len": "data.sequence",
        "sample_packing": "data.packing",
        "num_epochs": "train.epochs",
        "lora_target_modules": "method.lora.targets",
        "lora_modules_to_save": "method.lora.also_train",
        "adapter": "method",
        "wandb_project": "train.report_to",
        "val_set_size": "data.evaluation",
        "rl": "objective",
    },
    "llamafactory": {
        "cutoff_len": "data.sequence",
        "lora_target": "method.lora.targets",
        "finetuning_type": "method",
        "stage": "objective",
        "quantization_bit": "method.qlora",
        "flash_attn": "attention",
    },
    # what people say without any program
    "usage": {
        "lr": "train.learning_rate",
        **dict.fromkeys(
            (
                "batch_size",
                "effective",
                "effective_batch_size",
                "total_batch_size",
                "global_batch_size",
            ),
            "batch.global",
        ),
        "micro_batch": "pin.batch.micro",
        "micro_batch_size": "pin.batch.micro",
        "grad_accumulation": "pin.batch.accumulation",
        "accumulation": "pin.batch.accumulation",
        "epoch": "train.epochs",
        "max_seq_length": "data.sequence",
        "max_length": "data.sequence",
        "seq_len": "data.sequence",
        "sequence_length": "data.sequence",
        "dataset": "data.train",
        "train_file": "data.train",
        "repeats": "data.train.times",
        "num_repeats": "data.train.times",
        "weight": "data.train.times",
        "formatting": "data.format",
        "dataset_format": "data.format",
        "format_type": "data.format",
        "subset": "data.train.config",
        "dataset_config": "data.train.config",
        "dataset_train_split": "data.train.split",
        "split": "data.train.split",
        "image_count": "data.images.per_sample",
        "num_images": "data.images.per_sample",
        "eval": "data.evaluation",
        "validation": "data.evaluation",
        "warmup_ratio": "train.warmup",
        "peft": "method",
        "use_peft": "method",
        "learning_rate_scheduler": "train.schedule",
        "lr_scheduler": "train.schedule",
        "lora_r": "method.lora.rank",
        "lora_rank": "method.lora.rank",
        "dtype": "precision",
        "torch_dtype": "precision",
        "mixed_precision": "precision",
        "zero_stage": "pin.zero.stage",
        "gpus": "hardware",
        "gpu": "hardware",
        "num_gpus": "devices.count",
        "cluster": "hardware",
        "gpu_memory": "budget.gpu_memory",
        "attn_implementation": "attention",
        "flash_attention": "attention",
        "scheduler": "train.schedule",
        "model_name_or_path": "model",
        "base_model": "model",
        "pins": "pin",
        "wandb": "train.report_to",
        "tensorboard": "train.report_to",
        "quantization": "method",
        "quantize": "method",
        "bits": "method",
        "nodes": "hardware",
        "num_nodes": "hardware",
        "trainer": "targets",
        "framework": "targets",
    },
}
"""By consumer: the name, and the path in a spec; under `pin.`, a slot."""

UNSAID_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("resume", "resume_from_checkpoint", "resume_from"),
        "a spec says what to train, not where it continues: give run.sh the trainer's own flag, "
        "and ask `tunec resume CHECKPOINT --spec SPEC` first",
    ),
    **dict.fromkeys(
        ("data.images.count", "data.images.number", "data.images.n"),
        "write how many images a sample has at `data.images.per_sample`",
    ),
    **dict.fromkeys(
        ("data.num_frames", "data.video_frames", "data.target_frames", "data.clip_length"),
        "write the frames of a clip at `data.frames`",
    ),
    **dict.fromkeys(
        ("data.images.size", "data.images.resolution"), "write `width` and `height`, in pixels"
    ),
    **dict.fromkeys(
        ("data.path", "data.file", "data.files", "data.name", "data.source"),
        "write it at `data.train`",
    ),
    "schedule": "write `epochs` or `steps`, `warmup` and the `schedule` of the learning rate "
    "below `train`",
    **{
        f"data.{key}": f"write it beside the path: `train: {{path: ..., {key}: ...}}`"
        for key in ("split", "config")
    },
    **dict.fromkeys(
        ("prompt_template", "template"),
        "write the path of a Jinja file, or `plain`, at `data.chat_template`",
    ),
    **dict.fromkeys(
        ("init_lora_weights", *(f"method.{each}.init" for each in ("lora", "qlora", "int8_lora"))),
        "other initial values change neither memory nor time: give the trainer's own key below "
        "`extra`",
    ),
    **dict.fromkeys(
        ("columns", "text_column"),
        "a spec names the form of records alone (`format` under `data`): "
        "give the trainer's own key below `extra`",
    ),
}
"""Names, or paths, for which a spec has no field, and what to do instead."""

VALUE_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "bfloat16": ("bf16",),
    "torch.bfloat16": ("bf16",),
    "float16": ("fp16",),
    "torch.float16": ("fp16",),
    "half": ("fp16",),
    "float32": ("fp32",),
    "torch.float32": ("fp32",),
    "float": ("fp32",),
    "fp8": ("bf16",),
    "float8": ("bf16",),
    "adam": ("adamw",),
    "adamw_torch": ("adamw",),
    "adamw_torch_fused": ("adamw",),
    "adamw_bnb_8bit": ("adamw_8bit",),
    "adamw8bit": ("adamw_8bit",),
    "adam_bfloat16": ("adamw_bf16",),
    "lion_32bit": ("lion",),
    "paged_lion": ("paged_lion_32bit", "paged_lion_8bit"),
    "paged_adamw": ("paged_adamw_32bit", "paged_adamw_8bit"),
    "muonwithauxadam": ("muon",),
    "flash": ("flash_attention_2",),
    "flash_attn": ("flash_attention_2",),
    "fa2": ("flash_attention_2",),
    "8bit": ("int8_lora",),
    "4bit": ("qlora",),
    "single": ("none",),
    "gpu": ("none",),
    "warmup_cosine": ("cosine",),
    "freeze": ("lora", "full"),
}
"""Other programs' names of a choice, and the choices that were probably meant."""


def place_of(word: str) -> str | None:
    """The path in a spec for a name of another program."""
    spelled = word.lower().replace("-", "_").strip()
    return next((rows[spelled] for rows in FIELD_WORDS.values() if spelled in rows), None)


def unsaid(path: Path) -> str | None:
    """The advice for a field that a spec cannot express."""
    *_, name = path
    return UNSAID_WORDS.get(dotted(path)) or UNSAID_WORDS.get(str(name).lower())
