"""choose_loss: which code turns hidden states into a loss."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses import liger
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Origin
from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.slots import Adapter
from tunec.compiler.passes.contract import Option, Outcome, Scribe, device, model

_CHUNKS: Final = Version("1.4")
"""trl 1.4.0 trainer/sft_config.py: `loss_type` can be `chunked_nll`."""
_CHUNKS_UNASKED: Final = Version("1.7")
"""trl 1.7.1 trainer/sft_config.py `SFTConfig.__post_init__`: it is the default."""
_CHUNKS_ONLY: Final = Version("1.15")
"""trl 1.15.0 trainer/utils.py `add_fused_lm_head`, which the trainers of SFT, DPO and GRPO call for
every model; they refuse Liger's fused loss (`liger_kernel_config`)."""
_PATCHES_ADAPTED: Final = Version("4.51")
"""transformers 4.51.3 trainer.py `__init__` patches the model within a PeftModel, 4.46.3 leaves it
as it is; no release between them was read."""
_LIGER: Final = "liger-kernel"
_WRITING: Final = ("causal-lm", "vision-language")
_HEADS: Final = ("lm_head", "output", "embed_out")


def choose_loss(facts: Facts, draft: Draft) -> Outcome:
    """Use the leanest loss that the named software has: Liger's, TRL's in chunks, or the whole."""
    scribe = Scribe(facts)
    scribe.choose("loss.path", _options(facts, draft), "E0606", at="model")
    return scribe.outcome()


def _options(facts: Facts, draft: Draft) -> list[Option]:
    trl, supervised = _version(facts, "trl"), draft.objective.kind == "sft"
    adapts_head = _adapts_head(draft.adapter)
    newest_first = trl >= _CHUNKS_ONLY if trl else not _WHOLE & facts.versions.keys()
    unasked = (trl is not None and trl >= _CHUNKS_UNASKED) if supervised else newest_first
    rests = (Origin("spec", "software"),)
    pieces = Option(
        "chunked",
        "TRL computes the logits in chunks",
        _chunked_refused(draft, trl, adapts_head=adapts_head),
        rests,
    )
    whole = Option(
        "full",
        "the trainer computes all logits at once",
        None
        if supervised or not newest_first or draft.model.kind not in _WRITING
        else "from 1.15 on, TRL always computes the loss in chunks",
        (model("config"),),
    )
    weakest = facts.selection.weakest.device
    fused = Option(
        "fused",
        "liger-kernel is installed, and never holds all logits",
        _fused_refused(facts, draft, trl),
        (*rests, model("config"), device(weakest.name, "compute_capability")),
    )
    return [fused, pieces, whole] if unasked else [fused, whole, pieces]


_WHOLE: Final = frozenset({"axolotl", "llamafactory", "ms-swift", "unsloth", "verl", "openrlhf"})
"""Trainers that compute all logits of a pair: axolotl 0.13.2 to 0.19.0 with trl 0.27.0 to 1.9.0;
llamafactory 0.9.3 to 0.9.5 train/dpo/trainer.py, and ms-swift 4.0.4 to 4.6.0
rlhf_trainers/dpo_trainer.py `concatenated_forward`; verl 0.8.0 to 0.9.1
workers/engine/fsdp/transformer_impl.py `prepare_model_outputs`; openrlhf 0.10.4 to 0.11.2
models/actor.py `Actor.forward`."""


def _version(facts: Facts, package: str) -> Version | None:
    text = facts.versions.get(package)
    return None if text is None else Version(text)


def _chunked_refused(draft: Draft, trl: Version | None, *, adapts_head: bool) -> str | None:
    kind = draft.model.kind
    if kind not in _WRITING:
        return f"TRL does so only for models that generate text, not for {kind}"
    if draft.objective.kind != "sft":
        early = trl is not None and trl < _CHUNKS_ONLY
        return f"trl {trl} does so for supervised training only" if early else None
    if trl is None:
        return "no trl is named in the software, and other trainers compute all logits"
    if trl < _CHUNKS:
        return f"trl {trl} computes all logits"
    if trl < _CHUNKS_ONLY and adapts_head:
        # trl 1.4.0 to 1.14.2 trainer/sft_trainer.py: `lm_head` is wrapped by a PEFT adapter
        return f"trl {trl} does so only where the output projection has no adapter"
    return None


def _adapts_head(adapter: Adapter) -> bool:
    targets = adapter.targets
    named = (targets,) if isinstance(targets, str) else targets
    return any(each.rpartition(".")[2] in _HEADS for each in (*named, *adapter.also_train))


def _fused_refused(facts: Facts, draft: Draft, trl: Version | None) -> str | None:
    version = _version(facts, _LIGER)
    if version is None:
        return f"{_LIGER} is not named in the software"
    if draft.model.kind not in _WRITING:
        return f"Liger fuses the loss only of models that generate text, not of {draft.model.kind}"
    if draft.objective.kind != "sft":
        return "the memory of Liger's losses over answers is not modelled"
    if trl is not None and trl >= _CHUNKS_ONLY:
        return f"trl {trl} replaces Liger's loss with its own"
    if trl is None and (why := _unpatched(facts, draft)):
        return why
    capability = facts.selection.weakest.device.compute_capability
    return liger.refusal(draft.model.family, capability, version)


def _unpatched(facts: Facts, draft: Draft) -> str | None:
    """Why Liger's loss is unavailable; transformers has `use_liger_kernel` since 4.45."""
    found = _version(facts, "transformers")
    if found is None or found >= _PATCHES_ADAPTED:
        return None
    if found < Version("4.45"):
        return f"transformers {found} has no key for it"
    if draft.adapter.kind != "none":
        return f"transformers {found} does not apply it to a model with adapters"
    return None
