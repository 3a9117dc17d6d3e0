"""Accounts of published runs whose rows state all settings themselves.

`model` names a config of `published_models` or a card of the catalogue. `states`, `layout` and
`data` hold fields of the slots by their own names, where they differ from the simplest of
`workload_builders`; `keeps_logits`: of how many sequences a sample the run's own loop holds the
model's output while it differentiates the loss and steps, which the Trainer lets go of. `part`: of
which part alone modules train; `frozen`: of which part none does; `components`: what encodes the
data and stays; `also`, beside an adapter's targets: what is trained in full; `preference`: the
reference, `sequences` of a sample (two), and `scored`, tokens of an answer that the model wrote.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from published_models import ALSO, CONFIGS
from workload_builders import (
    ALL_LINEAR,
    ATTENTION,
    FSDP_1,
    NO_FSDP,
    NOT_QUANTISED,
    full,
    layout,
    lora,
    model,
    nf4,
    partly,
)

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.timeline import At, of_samples, timeline
from tunec.compiler.analyses.memory.workload import Layout, Preference, Workload
from tunec.compiler.ir.slots import AttentionKernel, Quantization
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.catalogue import card

Row = dict[str, Any]

TARGETS: Final = {"all-linear": ALL_LINEAR, "attention": ATTENTION}
QUANTIZATIONS: Final[dict[str, Callable[[], Quantization]]] = {
    "nf4": lambda: nf4(double=False),
    "nf4-double": nf4,
    "nf4-double-in-bf16": lambda: replace(nf4(), storage="bf16"),
    "fp4": lambda: replace(nf4(double=False), format="fp4"),
    "int8": lambda: Quantization("int8", False, "bf16", None),
}


@cache
def architecture_of(name: str) -> Architecture:
    """A model by the name that its row gives."""
    known = CONFIGS.get(ALSO.get(name, name))
    return model(known if known is not None else dict(card(name).config))


def stated_account(row: Row) -> Account:
    """The account of a row's own settings."""
    found = account(workload_of(row), layout_of(row))
    return keeping_logits(found, row["keeps_logits"]) if row.get("keeps_logits") else found


def workload_of(row: Row) -> Workload:
    """What a row trains, and on what."""
    architecture = architecture_of(row["model"])
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "attention": AttentionKernel(row["attn"]),
        "versions": tuple(row["versions"].items()),
        "loss": row.get("loss", "full"),
        **row.get("data", {}),
        **_components(row),
    }
    if "preference" in row:
        given["preference"] = Preference(
            row.get("sequences", 2), row["preference"], row.get("scored", 0)
        )
    of = [m for m in architecture.modules if m.part == row.get("part", m.part)]
    if row["method"] == "full":
        kept = [m for m in of if m.part != row.get("frozen")]
        return full(architecture, **given) if kept == of else partly(architecture, kept, **given)
    packed = row["quant"] and replace(QUANTIZATIONS[row["quant"]](), compute=given["compute"])
    asked = row["peft"]
    targets = TARGETS.get(asked["targets"], tuple(asked["targets"].split(",")))
    adapted = tuple(m for m in of if m.path.endswith(targets))
    given |= {"rank": asked["r"], "dropout": asked["dropout"], "adapted": adapted}
    given["also_train"] = tuple(m for m in of if m.path.endswith(tuple(asked.get("also", ()))))
    return lora(architecture, quantization=packed or NOT_QUANTISED, **given)


def _components(row: Row) -> dict[str, tuple[Architecture, ...]]:
    """Encoders of the data that stay through training."""
    if "components" not in row:
        return {}
    kept = [each for each in card(row["model"]).components if each.part in row["components"]]
    models = tuple(model(dict(each.config)) for each in kept)
    return {"components": models, "kept_components": models}


def layout_of(row: Row) -> Layout:
    """How a row's devices share the work."""
    asked = dict(row.get("layout", {}))
    usual = replace(FSDP_1, efficient_loading=True)
    fsdp = replace(usual, **asked.pop("fsdp")) if "fsdp" in asked else NO_FSDP
    return layout(
        row["micro_batch"],
        checkpointed=row["grad_ckpt"],
        accumulation=row["gas"],
        fsdp=fsdp,
        **row["states"],
        **asked,
    )


def keeping_logits(found: Account, sequences: int = 1) -> Account:
    """The account where the caller holds the logits of `sequences` until the next step."""
    states, workload = found.layout.states, found.workload
    width = BYTES[workload.precision.compute if states.autocast else states.weights]
    tokens = workload.data.sequence
    logits = {"kept logits": width * tokens * workload.architecture.vocab}
    kept = of_samples(logits, At.LOSS_BACKWARD, At.STEP, sequences)
    lines = timeline((*found.lines[0].course, *kept))
    micro = found.layout.batch.micro
    peak = max((line for line in lines if not line.evaluates), key=lambda line: line.at(micro))
    return replace(found, lines=lines, peak=peak, peak_bytes=peak.at(micro))
