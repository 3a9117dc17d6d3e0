"""The readers of ds_config.json, and conditions on a plan that decide what the file contains."""

from msgspec import Struct

from tunec.compiler.ir.plan import Plan
from tunec.schemas.terms import OptimizerName

PACKAGE = "deepspeed"

BUILT: dict[OptimizerName, str] = {"adamw": "AdamW", "lion": "Lion", "muon": "Muon", "sgd": "SGD"}
"""Optimizers that DeepSpeed builds from its file, by the type that names them there. deepspeed
0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: its own `adam`, `adamw`, `lion`
and, since 0.17.6, `muon`, and any class of torch.optim by its exact name."""
TESTED: tuple[OptimizerName, ...] = ("adamw", "lion", "muon")
TESTED_OF_OTHERS: tuple[OptimizerName, ...] = ("adamw",)
"""Optimizers that ZeRO accepts without `zero_allow_untested_optimizer`, whoever builds them.
deepspeed 0.14.5 to 0.19.8 runtime/zero/utils.py `ZERO_SUPPORTED_OPTIMIZERS`."""


class Reader(Struct, frozen=True):
    """A program that reads the file.

    `plain` is `deepspeed.initialize`, which knows nothing but the file. A trainer has its own
    optimizer, schedule and arguments, and compares shared values with the file.
    """

    name: str
    is_trainer: bool

    def builds_optimizer(self, plan: Plan) -> bool:
        """Whether DeepSpeed builds the optimizer from the file.

        A trainer builds the optimizer itself, so that it is named in one place. Offloaded states
        are an exception: they need DeepSpeed's CPU Adam or Lion, and deepspeed runtime/engine.py
        `_configure_optimizer` refuses others ("ZeRO-Offload with a client provided optimizer").
        Muon is another, because no trainer has it.
        """
        if plan.optimizer.name not in BUILT:
            return False
        own = plan.optimizer.name == "muon" or plan.zero.offload_optimizer != "none"
        return own or not self.is_trainer


PLAIN = Reader("deepspeed", is_trainer=False)
TRAINER = Reader("transformers", is_trainer=True)


# ── in which plans a key matters ─────────────────────────────────────────────────────────────────


def shards(plan: Plan) -> bool:
    """Whether ZeRO is on."""
    return plan.zero.stage >= 1


def shards_states(plan: Plan) -> bool:
    """Whether the stage is 1 or 2: sharded optimizer states, whole parameters."""
    return plan.zero.stage in (1, 2)


def shards_parameters(plan: Plan) -> bool:
    """Whether ZeRO shards parameters: stage 3."""
    return plan.zero.stage == 3


def offloads(plan: Plan) -> bool:
    """Whether the optimizer or the parameters are offloaded."""
    return plan.zero.offload_optimizer != "none" or plan.zero.offload_param != "none"


def uses_nvme(plan: Plan) -> bool:
    """Whether the optimizer or the parameters are offloaded to NVMe."""
    return "nvme" in (plan.zero.offload_optimizer, plan.zero.offload_param)


def in_fp16(plan: Plan) -> bool:
    """Whether the compute dtype is fp16."""
    return plan.precision.compute == "fp16"


def in_bf16(plan: Plan) -> bool:
    """Whether the compute dtype is bf16."""
    return plan.precision.compute == "bf16"
