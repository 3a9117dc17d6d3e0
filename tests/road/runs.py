"""The runs: what each spec asks, and how long it must last by what the data holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.road.diffusion_model import BESIDE, SIDE

from tunec.targets.llama_cookbook.schema import REQUIREMENTS as COOKBOOK

Spec = Mapping[str, Any]

_TRL: Final[Spec] = {
    "tunec": 1,
    "model": "./tiny",
    "data": {"train": "train.jsonl", "samples": 50, "sequence": 128},
    "hardware": "a100-80g-x2",
    "batch": {"global": 8},
    "train": {"learning_rate": 1e-3},
    "pin": {"schedule.log_steps": 1},
    "targets": ["trl"],
}


def _with(spec: Spec, changed: Spec) -> dict[str, Any]:
    """A spec with some of its fields changed; mappings are joined."""
    joined = {
        name: _with(spec[name], value)
        for name, value in changed.items()
        if isinstance(value, dict) and isinstance(spec.get(name), dict)
    }
    return {**spec, **changed, **joined}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the road."""

    name: str
    steps: int
    """Optimizer steps that the run must take."""
    changed: Spec = field(default_factory=dict)
    """What its spec has besides `_TRL`."""
    form: str = "text"
    """How its samples are written, a name of `materials.FORMS`."""
    always: bool = False
    """Whether it is run for each change, and not nightly alone."""
    beside: tuple[str, ...] = ()
    """Pins of packages that the run needs and that the project's environment has not."""
    pictures: Mapping[str, int] = field(default_factory=dict)
    """How many pictures each folder of them has."""

    @property
    def spec(self) -> Spec:
        """The whole spec."""
        return _with(_TRL, self.changed)

    @property
    def loop(self) -> str:
        """Whose loop trains: a target's own, or else transformers' Trainer."""
        (target,) = self.spec["targets"]
        return target if target in ("llama-cookbook", "simpletuner") else "transformers"


def _zero(stage: int) -> Spec:
    return {"engine": "deepspeed", "pin": {"zero.stage": stage}}


def _packed(sequence: int = 64, **trl: Any) -> Spec:
    data = {"samples": 150, "sequence": sequence, "packing": True, "lengths": "lengths.json"}
    changed = {"method": "lora", "data": data, "batch": {"global": 4}}
    return {**changed, "extra": {"trl": trl}} if trl else changed


def _cookbook(**changed: Any) -> Spec:
    """llama-cookbook on one device, by a data set of its own form."""
    return {
        "method": "lora",
        "hardware": "a100-80g-x1",
        "data": {"train": "samples.py"},
        "train": {"epochs": 2},
        "pin": {"batch.micro": 2, "schedule.log_steps": 1},
        "targets": ["llama-cookbook"],
        **changed,
    }


def _script(adapter: str) -> Spec:
    """A user's own script over transformers' Trainer."""
    named = ("training_args.yaml", "model_args.yaml", adapter)
    files = [f"huggingface/{name}" if name != "-" else name for name in named]
    run = {"script": "train.py", "arguments": [*files, "train.jsonl"]}
    return {"targets": ["huggingface"], "run": run}


def _quantised(name: str, changed: Spec, form: str = "text") -> Run:
    """Adapters over a base that bitsandbytes packs."""
    return Run(name, 7, changed, form, beside=("bitsandbytes==0.50.2",))


def _painting(name: str, steps: int, pictures: Mapping[str, int], **changed: Any) -> Run:
    """SimpleTuner over folders of pictures."""
    asked = {
        "model": {"path": "./painting", "config": "painting/transformer/config.json"},
        "method": "lora",
        "batch": {"global": 4},
        "targets": ["simpletuner"],
        **changed,
    }
    seen = {"train": "pictures", "samples": sum(pictures.values()), "resolution": SIDE}
    whole = {**asked, "data": {**seen, "sequence": None, **changed.get("data", {})}}
    return Run(name, steps, whole, form="pictures", beside=BESIDE, pictures=pictures)


def _text_of_a_model_that_sees(engine: str) -> Run:
    """Text alone, so that no gradient reaches the tower, although it is trained with the rest."""
    data = {"images": {"per_sample": 0}}
    asked = {"model": "./seeing", "method": "full", "engine": engine, "data": data}
    pin = {"activation_checkpointing.mode": "layer"}
    if engine == "fsdp":
        # torch 2.13.0 frees the parameters of a full state dict that it makes on a CPU
        pin |= {"fsdp.version": 1, "fsdp.state_dict": "sharded"}
    return Run(f"text of a model that sees under {engine}", 7, {**asked, "pin": pin})


RUNS: Final = (
    Run("lora of texts under ddp", 7, {"method": "lora", "engine": "ddp"}, always=True),
    Run("lora of texts with a probe", 7, {"method": "lora", "engine": "ddp", "watch": True}),
    Run("lora of messages", 7, {"method": "lora"}, form="messages"),
    Run("lora of answers to prompts", 7, {"method": "lora"}, form="completion"),
    Run("full under ddp", 7, {"method": "full", "engine": "ddp"}),
    Run("full under zero 1", 7, {"method": "full", **_zero(1)}),
    Run("full under zero 2", 7, {"method": "full", **_zero(2)}),
    Run("full under zero 3", 7, {"method": "full", **_zero(3)}, always=True),
    Run("lora under zero 2", 7, {"method": "lora", **_zero(2)}),
    Run("lora under zero 3", 7, {"method": "lora", **_zero(3)}),
    Run("full under fsdp 2", 7, {"method": "full", "engine": "fsdp"}, always=True),
    Run("lora under fsdp 2", 7, {"method": "lora", "engine": "fsdp"}),
    Run(
        "lora under fsdp 2 with recomputed layers",
        7,
        {"method": "lora", "engine": "fsdp", "pin": {"activation_checkpointing.mode": "layer"}},
    ),
    Run(
        "full under fsdp 1",
        7,
        # torch 2.13.0 frees the parameters of a full state dict that it makes on a CPU
        {
            "method": "full",
            "engine": "fsdp",
            "pin": {"fsdp.version": 1, "fsdp.state_dict": "sharded"},
        },
    ),
    Run("two epochs with an uneven tail", 14, {"method": "lora", "train": {"epochs": 2}}),
    Run("so many steps", 5, {"method": "lora", "train": {"steps": 5}}),
    Run("one device", 7, {"method": "lora", "hardware": "a100-80g-x1"}),
    Run("a script", 7, {"method": "full", **_script("-")}, always=True),
    Run("a script with adapters", 7, {"method": "lora", **_script("adapter_config.json")}),
    Run("a script under zero 2", 7, {"method": "full", **_script("-"), **_zero(2)}),
    Run(
        "a script under zero 2 by accelerate",
        7,
        {"method": "full", "launcher": "accelerate", **_script("-"), **_zero(2)},
    ),
    Run(
        "a script under FSDP by accelerate",
        7,
        {
            "method": "full",
            "launcher": "accelerate",
            "engine": "fsdp",
            "pin": {"fsdp.version": 1, "fsdp.state_dict": "sharded"},
            **_script("-"),
        },
    ),
    Run("packed", 11, _packed()),
    Run("packed in one stream", 11, _packed(packing_strategy="wrapped")),
    Run("packed, long ones split", 34, _packed(20, packing_strategy="bfd_split")),
    _quantised("qlora", {"method": "qlora"}),
    _quantised("int8", {"method": "int8_lora"}),
    _quantised(
        "qlora in fp4, of pairs",
        {"method": {"qlora": {"format": "fp4", "double": False}}, "objective": "dpo"},
        form="pairs",
    ),
    _quantised("qlora under zero 2", {"method": "qlora", **_zero(2)}),
    _quantised("a reward model over 4 bits", {"method": "qlora", "objective": "reward"}, "pairs"),
    Run(
        "full under zero 2 with accumulation",
        7,
        {"method": "full", "engine": "deepspeed", "pin": {"zero.stage": 2, "batch.micro": 1}},
    ),
    Run(
        "lora under zero 2 with accumulation and evaluation",
        13,
        {
            "method": "lora",
            "engine": "deepspeed",
            "batch": {"global": 4},
            "data": {"evaluation": "held.jsonl"},
            "train": {"evaluations": 3},
            "pin": {"zero.stage": 2, "batch.micro": 1},
            "extra": {"trl": {"dataset_num_proc": 2, "logging_first_step": True}},
        },
    ),
    Run(
        "saved often",
        7,
        {"method": "lora", "pin": {"schedule.save_steps": 3, "schedule.keep_checkpoints": None}},
    ),
    Run("llama-cookbook", 14, _cookbook(), beside=COOKBOOK, always=True),
    Run(
        "llama-cookbook in full",
        14,
        _cookbook(method="full", pin={"batch.micro": 2, "states.weights": "bf16"}),
        beside=COOKBOOK,
    ),
    Run(
        "llama-cookbook, packed",
        4,  # 848 tokens, of which the last 53 make no row
        _cookbook(
            data={"train": "samples.py", "sequence": 53, "packing": True, "lengths": "lengths.json"}
        ),
        beside=COOKBOOK,
    ),
    Run(
        "images",
        7,
        {
            "model": "./seeing",
            "method": "lora",
            "data": {"train": "train.parquet", "images": {"per_sample": 1}},
        },
        form="images",
    ),
    *(_text_of_a_model_that_sees(engine) for engine in ("ddp", "deepspeed", "fsdp")),
    _painting(
        "pictures",
        7,
        {"pictures": 11},
        train={"steps": 7, "schedule": "polynomial", "warmup": 3},
        pin={"schedule.save_steps": 3, "schedule.keep_checkpoints": None},
    ),
    _painting(
        "pictures of two folders, accumulated, for two epochs",
        9,  # a rank has 5 pictures and twice 2 an epoch, so 18 batches, of which two make a step
        {"pictures": 9, "closeups": 4},
        data={"train": ["pictures", {"path": "closeups", "times": 2}], "samples": 17},
        train={"epochs": 2},
        pin={"batch.micro": 1, "schedule.save_steps": 2, "schedule.keep_checkpoints": 3},
    ),
    _painting(
        "pictures in full",
        8,
        {"pictures": 30},
        method="full",
        pin={"schedule.save_steps": 4, "schedule.keep_checkpoints": None},
    ),
    _painting(
        "pictures under fsdp 2", 5, {"pictures": 20}, engine="fsdp", train={"optimizer": "adamw"}
    ),
    Run("preferences", 7, {"method": "lora", "objective": "dpo"}, form="pairs", always=True),
    Run("preferences in full", 7, {"method": "full", "objective": "dpo"}, form="pairs"),
    Run("a reward model", 7, {"method": "lora", "objective": "reward"}, form="pairs", always=True),
    Run(
        "a reward model under zero 3",
        7,
        {"method": "full", "objective": "reward", **_zero(3)},
        form="pairs",
    ),
    Run(
        "a reward model under fsdp 2",
        7,
        {"method": "lora", "objective": "reward", "engine": "fsdp"},
        form="pairs",
    ),
    Run(
        "a reward model in full",
        14,
        {"method": "full", "objective": "reward", "train": {"epochs": 2}, **_zero(2)},
        form="pairs",
    ),
    Run(
        "rewarded answers",
        25,
        {
            "method": "lora",
            "objective": {
                "grpo": {"rewards": ["think_format_reward"], "samples": 4, "completion": 16}
            },
            "batch": {"global": 8},
        },
        form="questions",
        always=True,
    ),
)
