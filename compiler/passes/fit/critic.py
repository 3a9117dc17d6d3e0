"""PPO's critic as the accounts need it: the training of a second model."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.analyses.memory.workload import Critic, Workload
from tunec.compiler.analyses.padding import padded_counts
from tunec.compiler.analyses.trainable import trained_modules
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import AttentionKernel, Precision
from tunec.compiler.passes.fit.states import states_of
from tunec.schemas.frozen import replace

_FULL: Final[Mapping[str, Any]] = {
    "kind": "none",
    "rank": 0,
    "targets": (),
    "parameters": (),
    "also_train": (),
    "frozen": (),
    "merge": "never",
    "dora": False,
}


def critic_of(
    facts: Facts, draft: Draft, precision: Precision, versions: Mapping[str, str]
) -> Critic | None:
    """The critic, which is trained in full on the answers of the other model; None without PPO.

    verl 0.8.0 to 0.9.1 utils/model.py `load_valuehead_model`: it has flash attention, whatever the
    actor has.
    """
    if facts.critic is None:
        return None
    architecture, adapter = facts.critic.architecture, replace(draft.adapter, **_FULL)
    workload = Workload(
        architecture=architecture,
        components=(),
        data=draft.data,
        precision=precision,
        attention=AttentionKernel("flash_attention_2"),
        quantization=replace(draft.quantization, format="none"),
        adapter=adapter,
        optimizer=draft.optimizer,
        adapted=(),
        trained=trained_modules(architecture, adapter),
        versions=tuple(sorted(versions.items())),
        lengths=padded_counts(facts.lengths, draft.data, draft.objective),
    )
    is_apart = draft.adapter.kind != "none"
    states = states_of(workload, "fsdp", 0, fsdp=1) if is_apart else None
    return Critic(workload, draft.ppo.epochs, states)
