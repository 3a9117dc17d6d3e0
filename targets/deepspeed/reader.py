"""Who reads ds_config.json, and what of a plan then stands in it."""

from msgspec import Struct

from tunec.compiler.ir.plan import Plan
from tunec.schemas.terms import OptimizerName

PACKAGE = "deepspeed"

BUILT: dict[OptimizerName, str] = {"adamw": "AdamW", "lion": "Lion", "muon": "Muon", "sgd": "SGD"}
"""Optimizers that DeepSpeed builds from its file, by the type it knows them as.

deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: its own `adam`, `adamw`,
`lion` and, since 0.17.6, `muon`, and any class of torch.optim by its exact name.
"""
TESTED: tuple[OptimizerName, ...] = ("adamw", "lion", "muon")
TESTED_OF_OTHERS: tuple[OptimizerName, ...] = ("adamw",)
"""Those that ZeRO takes without `zero_allow_untested_optimizer`: built by DeepSpeed, and by others.

deepspeed 0.14.5 to 0.19.8 runtime/zero/utils.py `ZERO_SUPPORTED_OPTIMIZERS`.
"""


class Reader(Struct, frozen=True):
    """A program that reads the file.

    `plain` is `deepspeed.initialize`: whatever is not in the file is not known. A trainer brings
    optimizer, schedule and arguments of its own and compares shared values with the file.
    """

    name: str
    is_trainer: bool

    def builds_optimizer(self, plan: Plan) -> bool:
        """Whether DeepSpeed builds the optimizer from the file.

        A trainer builds it itself, so that it is named in one place, except where its states are
        offloaded: that takes DeepSpeed's CPU Adam or Lion, which deepspeed runtime/engine.py
        `_configure_optimizer` otherwise refuses ("ZeRO-Offload with a client provided optimizer");
        and for Muon, which no trainer has.
        """
        if plan.optimizer.name not in BUILT:
            return False
        own = plan.optimizer.name == "muon" or plan.zero.offload_optimizer != "none"
        return own or not self.is_trainer


PLAIN = Reader("deepspeed", is_trainer=False)
TRAINER = Reader("transformers", is_trainer=True)


# ── in which plans a key matters ─────────────────────────────────────────────────────────────────


def shards(plan: Plan) -> bool:
    """ZeRO is on."""
    return plan.zero.stage >= 1


def shards_states(plan: Plan) -> bool:
    """Stage 1 or 2: optimizer states, and gradients, but whole parameters."""
    return plan.zero.stage in (1, 2)


def shards_parameters(plan: Plan) -> bool:
    """Stage 3."""
    return plan.zero.stage == 3


def offloads(plan: Plan) -> bool:
    """Something lives off the device."""
    return plan.zero.offload_optimizer != "none" or plan.zero.offload_param != "none"


def uses_nvme(plan: Plan) -> bool:
    """Something lives on NVMe."""
    return "nvme" in (plan.zero.offload_optimizer, plan.zero.offload_param)


def in_fp16(plan: Plan) -> bool:
    """The compute dtype is fp16."""
    return plan.precision.compute == "fp16"


def in_bf16(plan: Plan) -> bool:
    """The compute dtype is bf16."""
    return plan.precision.compute == "bf16"
