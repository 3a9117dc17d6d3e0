"""Default values: each with its condition and its source.

`docs/defaults.md` is generated from this table. It does not contain computed values, such as a
micro batch. The defaults of a spec's own fields are read from their declarations.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.schemas.objectives import Dpo, Grpo, Ppo
from tunec.schemas.shape import Shape
from tunec.schemas.spec import Lora, Optimizer, Qlora, Train
from tunec.schemas.terms import OptimizerName


class Default(Struct, frozen=True):
    """A value that a slot gets by default."""

    slot: str
    value: Any
    when: str
    """The condition under which it applies; empty: always."""
    source: str
    """A publication, a program, or a judgement, which then says that it is one."""


_ZEPHYR: Final = (
    "huggingface/alignment-handbook 0213b5b recipes/zephyr-7b-beta/sft/config_qlora.yaml"
)
_TULU: Final = "allenai/open-instruct 0becd2c docs/tulu3.md"


def _of(shape: type[Shape], field: str) -> Any:
    """The default of a field of the spec."""
    return shape.model_fields[field].default


# ── how much is left free ────────────────────────────────────────────────────────────────────────

RESERVE: Final = Default(
    "devices.reserve",
    0.05,
    "of a device's memory, where no budget is given; not kept where that makes the run slower by a "
    "tenth, which a warning says",
    "a judgement: accelerate 1.15 utils/modeling.py `get_balanced_memory` leaves a tenth on one "
    "device, of which the account counts context and slack itself",
)

# ── in what gradients are added up ───────────────────────────────────────────────────────────────

GRADIENTS: Final = Default(
    "states.gradients",
    "fp32",
    "full training in bf16 under ZeRO, where several micro batches make a step and the optimizer "
    "is on the device; bf16 where fp32 makes the run slower by a tenth",
    "NVIDIA/Megatron-LM megatron/training/arguments.py `accumulate_allreduce_grads_in_fp32`: so "
    "for bf16 unless told otherwise",
)

# ── how much a step sees ─────────────────────────────────────────────────────────────────────────

BATCH: Final = Default(
    "batch.global",
    32,
    "samples, of no more tokens together than the next row says; rounded up to whole samples on "
    "every device, and to whole groups of answers",
    "a judgement: QLoRA takes 16 to 64 (arXiv 2305.14314, appendix B.2), Stanford Alpaca 128",
)
BATCH_TOKENS: Final = Default(
    "batch.global",
    128 * 4096,
    "tokens that a step sees at most, one sample for each device at least",
    f"{_TULU}: 128 samples of at most 4,096 tokens",
)
BATCH_IMAGES: Final = Default(
    "batch.global",
    4,
    "diffusion models",
    "diffusers examples/dreambooth README_sdxl.md: one image, accumulated over 4 steps",
)
SEQUENCE: Final = Default(
    "data.sequence",
    2048,
    "models of text, up to their context; a note says so",
    f"{_ZEPHYR}: max_length",
)
SIDE: Final = Default(
    "data.image_width",
    1024,
    "pixels of an image where neither spec nor model gives its size; a note says so",
    "a judgement: 1024 x 1024 becomes 1369 tokens in Qwen2.5-VL, a screenshot of 1280 x 720 1196",
)

# ── rewarded answers ─────────────────────────────────────────────────────────────────────────────

VLLM_SHARE: Final = Default(
    "generation.device_share",
    0.3,
    "answers written by vLLM on the training devices",
    "trl 0.18.2 to 1.16.0 trainer/grpo_config.py `vllm_gpu_memory_utilization`",
)
_GRPO: Final = "trainer/grpo_config.py"
_VERL: Final = "verl 0.8.0 to 0.9.1 trainer/config/"

OF_ANSWERS: Final = (
    Default("objective.beta", _of(Dpo, "beta"), "DPO", "trl 0.8.6 to 1.16.0 trainer/dpo_config.py"),
    Default("objective.beta", _of(Grpo, "beta"), "GRPO", f"trl 0.18.2 to 1.16.0 {_GRPO}"),
    Default("generation.samples", _of(Grpo, "samples"), "GRPO", f"trl 0.15.2 to 1.16.0 {_GRPO}"),
    Default(
        "generation.completion",
        _of(Grpo, "completion"),
        "GRPO",
        f"trl 0.15.2 to 1.9.2 {_GRPO}; from 1.11.0 on it is 512 there",
    ),
    Default(
        "generation.temperature", _of(Grpo, "temperature"), "GRPO", f"trl 0.25.1 to 1.16.0 {_GRPO}"
    ),
    Default("objective.loss", "the trainer's own", "GRPO", f"dapo in trl 1.16.0 {_GRPO}"),
    *(
        Default(slot, _of(Ppo, slot.rpartition(".")[2]), "PPO", source)
        for slot, source in (
            ("objective.beta", f"{_VERL}ppo_trainer.yaml: `use_kl_in_reward` is off"),
            ("generation.samples", f"{_VERL}rollout/rollout.yaml `n`"),
            ("generation.completion", "as of GRPO"),
            ("generation.temperature", f"{_VERL}rollout/rollout.yaml"),
            ("ppo.critic_learning_rate", f"{_VERL}critic/critic.yaml"),
            ("ppo.gamma", f"{_VERL}ppo_trainer.yaml"),
            ("ppo.lam", f"{_VERL}ppo_trainer.yaml"),
            ("ppo.epochs", f"{_VERL}actor/actor.yaml `ppo_epochs`"),
            ("ppo.clip", f"{_VERL}actor/actor.yaml `clip_ratio`"),
            ("ppo.value_clip", f"{_VERL}critic/critic.yaml `cliprange_value`"),
        )
    ),
)

# ── how fast ─────────────────────────────────────────────────────────────────────────────────────

Method = Literal["full", "adapter"]
Aim = Literal["language", "diffusion", "dpo", "grpo", "ppo", "reward"]


class Rate(Struct, frozen=True):
    """A learning rate of AdamW for models with more than `above` parameters."""

    method: Method
    aim: Aim
    above: float
    value: float
    source: str

    @property
    def default(self) -> Default:
        """The rate as a row of the page of defaults."""
        of = {"full": "full training", "adapter": "adapters"}[self.method]
        aim = {
            "language": "by given texts",
            "diffusion": "of diffusion models",
            "reward": "of reward models",
        }
        size = f", above {self.above / 1e9:g}B parameters" if self.above else ""
        when = f"{of} {aim.get(self.aim, f'by {self.aim.upper()}')}{size}"
        return Default("optimizer.learning_rate", self.value, when, self.source)


_PEFT_AND_TRL: Final = "trl 1.16 docs/source/peft_integration.md, 'Learning Rate Considerations'"
_REWARDS: Final = "trl 0.28.0 examples/scripts/reward_modeling.py: a model of 0.5B"
_PPO: Final = "verl 0.9.0 examples/ppo_trainer/run_qwen3_8b_fsdp.sh `ACTOR_LR`"
_LLAMA_3: Final = "arXiv 2407.21783 (Llama 3), section 4.1.3: the largest models, at 1e-5"

RATES: Final = (
    Rate("full", "language", 0, 2e-5, "tatsu-lab/stanford_alpaca README: 7B"),
    Rate("full", "language", 40e9, 1e-5, _LLAMA_3),
    Rate("adapter", "language", 0, 2e-4, "arXiv 2305.14314 (QLoRA), appendix B.2: 7B and 13B"),
    Rate(
        "adapter",
        "language",
        14e9,
        1e-4,
        "the same: 33B and 65B; artidoro/qlora 046b26e README: 0.0001 for models larger than 13B",
    ),
    Rate("adapter", "diffusion", 0, 1e-4, "diffusers examples/dreambooth README_sdxl.md, _flux.md"),
    Rate("full", "diffusion", 0, 1e-5, "diffusers examples/text_to_image README.md"),
    Rate("full", "dpo", 0, 5e-7, f"{_PEFT_AND_TRL}; {_TULU}: 8B"),
    Rate("full", "dpo", 40e9, 2e-7, f"{_TULU}: 70B and 405B"),
    Rate("adapter", "dpo", 0, 5e-6, _PEFT_AND_TRL),
    Rate("full", "grpo", 0, 1e-6, _PEFT_AND_TRL),
    Rate("adapter", "grpo", 0, 1e-5, _PEFT_AND_TRL),
    Rate("full", "ppo", 0, 1e-6, _PPO),
    Rate("adapter", "ppo", 0, 3e-5, "verl 0.9.0 docs/advance/ppo_lora.rst: 3B, rank 64"),
    Rate("full", "reward", 0, 1e-5, _REWARDS),
    Rate("adapter", "reward", 0, 1e-4, _REWARDS),
)

_OF_LION: Final = "arXiv 2302.06675 (Lion), section 5: a rate 3 to 10 times smaller than AdamW's"
_LIONS: Final = ("lion", "lion_8bit", "paged_lion_8bit", "paged_lion_32bit")
PACES: Final[Mapping[str, tuple[float, str]]] = dict.fromkeys(_LIONS, (0.2, _OF_LION))
"""The share of AdamW's rate that an optimizer's authors recommend, with the source."""
RATES_OF: Final[Mapping[str, tuple[float, str]]] = {
    "lomo": (3e-2, "OpenLMLab/LOMO 07760bd lomo/config/args_lomo.yaml, which clips besides"),
    "adalomo": (5e-4, "OpenLMLab/LOMO ea7979d adalomo/instruction-tuning/train.py `--lr`"),
}
"""Rates of optimizers whose steps do not resemble Adam's, for any model."""


def usual_rate(method: Method, aim: Aim, parameters: int, optimizer: OptimizerName) -> float:
    """The usual learning rate of a method for a model with this many parameters."""
    if optimizer in RATES_OF:
        return RATES_OF[optimizer][0]
    fitting = (r for r in RATES if (r.method, r.aim) == (method, aim) and parameters > r.above)
    share, _ = PACES.get(optimizer, (1.0, ""))
    return float(f"{max(fitting, key=lambda each: each.above).value * share:.3g}")


# ── the fields of the spec ───────────────────────────────────────────────────────────────────────

_ADAMW: Final = "torch 2.13 optim/adamw.py `AdamW`"
OF_FIELDS: Final = (
    Default("adapter.rank", _of(Lora, "rank"), "adapters", f"{_ZEPHYR}: lora_r"),
    Default("adapter.alpha", "2 x rank", "adapters", "a judgement: usual in PEFT's own examples"),
    Default(
        "adapter.dropout", _of(Lora, "dropout"), "adapters", "peft 0.21.2 tuners/lora/config.py"
    ),
    Default(
        "adapter.targets",
        _of(Lora, "targets"),
        "adapters on models of text; on diffusion models the attention alone",
        "arXiv 2305.14314 (QLoRA), section 4; diffusers' own default",
    ),
    Default("quantization.format", _of(Qlora, "format"), "QLoRA", "arXiv 2305.14314, section 3"),
    Default("quantization.double", _of(Qlora, "double"), "QLoRA", "arXiv 2305.14314, section 3"),
    Default(
        "optimizer.name",
        _of(Optimizer, "name"),
        "adamw_bf16 for diffusion models in bf16",
        "transformers 5.23 training_args.py `optim`; simpletuner's own default",
    ),
    Default("optimizer.beta1", _of(Optimizer, "beta1"), "", _ADAMW),
    Default("optimizer.beta2", _of(Optimizer, "beta2"), "", _ADAMW),
    Default("optimizer.epsilon", _of(Optimizer, "epsilon"), "", _ADAMW),
    Default(
        "optimizer.weight_decay",
        _of(Optimizer, "weight_decay"),
        "",
        f"transformers 5.23 training_args.py `weight_decay`; {_TULU}",
    ),
    Default(
        "optimizer.max_grad_norm",
        _of(Optimizer, "max_grad_norm"),
        "",
        "transformers 5.23 training_args.py `max_grad_norm`",
    ),
    Default("schedule.kind", _of(Train, "schedule"), "", f"{_ZEPHYR}: lr_scheduler_type"),
    Default(
        "schedule.warmup_share",
        _of(Train, "warmup").share,
        "models of text; 100 steps, a tenth of all at most, for diffusion models",
        "tatsu-lab/stanford_alpaca README: warmup_ratio",
    ),
    Default(
        "schedule.save_steps",
        "an hour's worth",
        "by the account of time, and at the end of the run",
        "a judgement: no failure costs more than an hour of work",
    ),
    Default(
        "schedule.keep_checkpoints",
        _of(Train, "keep_checkpoints"),
        "",
        "a judgement: the last, and one before it in case it was cut short",
    ),
    Default(
        "schedule.evaluation_steps",
        "once an epoch",
        "where there is data for it; 4 times in a run at least, and 10 at most",
        "a judgement: enough to see a curve, and little of the time",
    ),
    Default("runtime.seed", _of(Train, "seed"), "", "transformers 5.23 training_args.py `seed`"),
)

DEFAULTS: Final = (
    *(RESERVE, GRADIENTS, BATCH, BATCH_TOKENS, BATCH_IMAGES, SEQUENCE, SIDE, VLLM_SHARE),
    *(each.default for each in RATES),
    *(
        Default("optimizer.learning_rate", f"{share:g} x AdamW's", name, source)
        for name, (share, source) in PACES.items()
    ),
    *(
        Default("optimizer.learning_rate", rate, name, source)
        for name, (rate, source) in RATES_OF.items()
    ),
    *OF_ANSWERS,
    *OF_FIELDS,
)
"""Every row, in the order of the page."""
