"""choose_attention: which attention implementation runs."""

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Option, Outcome, Scribe, device, model
from tunec.schemas.models.architecture import Architecture


def choose_attention(facts: Facts, draft: Draft) -> Outcome:
    """Use torch's fused attention, unless the model or the devices rule it out."""
    scribe = Scribe(facts)
    weakest = facts.selection.weakest.device
    architecture = facts.model.architecture
    softcap = any(stack.softcap for stack in architecture.stacks)
    options = [
        Option(
            "sdpa",
            "torch's own fused attention; nothing to install",
            _fused_refused(architecture.eager, softcap),
            (model("config"),),
        ),
        Option(
            "flash_attention_2",
            "the flash-attn package's kernels",
            _flash_refused(architecture, weakest.compute_capability, draft.precision.compute),
            (device(weakest.name, "compute_capability"),),
        ),
        Option("eager", "plain matrix products; keeps every score", None, (model("config"),)),
    ]
    if softcap or architecture.eager:
        # transformers 5.23 models/gemma2: eager is the recommended path for training
        options.sort(key=lambda option: option.value != "eager")
    wish = facts.spec.attention
    scribe.choose("attention.implementation", options, "E0603", wish, "attention")
    return scribe.outcome()


def _fused_refused(eager: bool, softcap: bool) -> str | None:
    if eager:
        return "the model's class takes no fused attention of torch's (`_supports_sdpa`)"
    return "it cannot cap attention scores, which this model does" if softcap else None


def _flash_refused(
    architecture: Architecture, capability: tuple[int, int] | None, compute: str
) -> str | None:
    """Why FlashAttention 2 cannot run: its README asks for Ampere or newer, and fp16 or bf16.

    The package's kernels lack attention sinks (transformers 5.23 models/gpt_oss).
    """
    if architecture.eager and not architecture.flash:
        return "the model's class takes none of its kernels (`_compatible_flash_implementations`)"
    if capability is not None and capability < (8, 0):
        return f"flash-attn 2 needs compute capability 8.0, not {capability[0]}.{capability[1]}"
    if compute == "fp32":
        return "flash-attn 2 computes in fp16 or bf16 only"
    return None
