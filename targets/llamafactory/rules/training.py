"""Settings of LLaMA-Factory that training ignores."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.launch import launches, listed, variable
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.model import experts, family
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Architecture


_FORCED = ("FORCE_TORCHRUN", "USE_MCA")
_ON = ("1", "true", "y")


@rule(
    "error", "parse", consumers=("llamafactory",), reads=("llamafactory:deepspeed",), hardware=True
)
def deepspeed_without_torchrun(run: LintContext) -> Iterator[Finding]:
    """LLaMA-Factory starts one process without torchrun, and DeepSpeed is requested."""
    for launcher in launches(run, "llamafactory"):
        at, seen = _deepspeed_file(run), _seen(run, launcher)
        place = launcher.get("launcher")
        if at is None or place is None or seen is None or seen[0] != 1 or _is_forced(launcher):
            continue
        yield Finding(
            "deepspeed is refused: llamafactory-cli starts one process by itself for one device",
            (at.label("refused"), place.label("", primary=False), *also(seen[1], "one device")),
            ("Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training",),
            "write FORCE_TORCHRUN=1 before the command",
        )


def _deepspeed_file(run: LintContext) -> Place | None:
    for document in run.of("llamafactory"):
        at = document.get("deepspeed")
        if at is not None and at.value and not document.is_view:
            return at
    return None


def _is_forced(launcher: Document) -> bool:
    if launcher.unknown & {"environment"}:
        return True
    said = (variable(launcher, name) for name in _FORCED)
    return any(each is not None and str(each.value).lower() in _ON for each in said)


def _seen(run: LintContext, launcher: Document) -> tuple[int, Place | None] | None:
    """The number of devices that the command sees, and the place that sets it; None: unknown."""
    visible = variable(launcher, "CUDA_VISIBLE_DEVICES")
    names = listed(visible)
    if names is not None:
        return len(names), visible
    cluster = run.environment.cluster
    return (max(n.device_count for n in cluster.nodes), None) if cluster else None


_INDEX: Final = re.compile(r"\.\{\}\.")


@rule(
    "error",
    "load",
    consumers=("llamafactory",),
    reads=keys(
        "llamafactory", "freeze_trainable_modules", "freeze_extra_modules", "freeze_language_model"
    ),
)
def frozen_modules_missing(run: LintContext) -> Iterator[Finding]:
    """Freeze-tuning or LoRA names parts of the model that do not exist, or are frozen."""
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        if document.value("finetuning_type") == "freeze" and run.model is not None:
            yield from _named(document, run.model.architecture)
        yield from _frozen(run, document)


def _named(document: Document, architecture: "Architecture") -> Iterator[Finding]:
    """`freeze_trainable_modules` takes names directly below a layer: `self_attn`, not `q_proj`."""
    yield from _beside_layers(document, architecture)
    at = where(document, "freeze_trainable_modules")
    blocks = _blocks(architecture)
    if at is None or not blocks:
        return
    lost = [each for each in _names(at) if each != "all" and each not in blocks]
    if lost:
        near = nearest(lost[0], blocks)[:1]
        yield Finding(
            f"no layer has a module {quoted(lost, 'or')}",
            (at.label("not found"),),
            (f"a layer is made of {', '.join(sorted(blocks))}",),
            f"write {near[0]}" if near else "write all, or one of these",
        )


def _beside_layers(document: Document, architecture: "Architecture") -> Iterator[Finding]:
    """`freeze_extra_modules` takes modules outside of the layers: embeddings, last norm, head."""
    at = where(document, "freeze_extra_modules")
    outside = {each.path for each in architecture.modules if not _INDEX.search(each.path)}
    names = {path.rpartition(".")[2] for path in {*outside, architecture.head or ""} if path}
    lost = [each for each in _names(at) if each not in names] if at is not None else []
    if at is not None and names and lost:
        yield Finding(
            f"no module outside of the layers is called {quoted(lost, 'or')}",
            (at.label("not found"),),
            (f"there are {', '.join(sorted(names))}",),
            "write one of these",
        )


def _blocks(architecture: "Architecture") -> frozenset[str]:
    paths = (each.path for each in architecture.modules if _INDEX.search(each.path))
    return frozenset(_INDEX.split(path, maxsplit=1)[1].partition(".")[0] for path in paths)


def _names(at: Place) -> list[str]:
    value = at.value if isinstance(at.value, list) else str(at.value).split(",")
    return [str(each).strip() for each in value if str(each).strip()]


def _frozen(run: LintContext, document: Document) -> Iterator[Finding]:
    """LoRA on all linear layers of a vision-language model whose language model is frozen.

    The layers of its tower are frozen by default, and `all` never includes the projector.
    """
    at = where(document, "freeze_language_model=true & finetuning_type=lora")
    eyes = document.get("freeze_vision_tower")
    targets = document.get("lora_target")
    is_all = targets is None or targets.value == "all"
    sees = run.model is not None and run.model.architecture.kind == "vision-language"
    if at is None or not is_all or not sees or (eyes is not None and eyes.value is False):
        return
    yield Finding(
        "the language model and the vision tower are frozen: LoRA has no layer left",
        (at.label("frozen"), *also(eyes), *also(targets)),
        (
            "freeze_vision_tower is true where it is left out",
            "lora_target all leaves the projector out",
        ),
        "write freeze_vision_tower: false, or train the projector by finetuning_type: full",
        consequence="init",
    )


_EARLY: Final = frozenset(
    {"gemma", "gemma2", "llama", "mistral", "mixtral", "phi3", "qwen2", "qwen2_vl"}
)
_LATER: Final = frozenset(
    {"gemma3", "gemma3_text", "glm", "glm4", "glm4v", "granite", "llava", "mllama", "olmo2"}
    | {"paligemma", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "gpt_oss"}
)
"""Model types that releases from 0.9.2 to 0.9.5 added."""
_FIRST: Final = "llamafactory<0.9.2"


@rule("warning", "silent", consumers=("llamafactory",), reads=("llamafactory:enable_liger_kernel",))
def liger_not_for_the_model(run: LintContext) -> Iterator[Finding]:
    """Liger's kernels are requested for a model that LLaMA-Factory has none for."""
    card = run.model.card if run.model is not None else None
    kind = card.config.get("model_type") if card is not None else None
    if not isinstance(kind, str) or kind in _EARLY:
        return
    if kind in _LATER and not run.runs(_FIRST):
        return
    for document in run.of("llamafactory"):
        at = document.get("enable_liger_kernel")
        if at is not None and at.value is True and not document.is_view:
            yield Finding(
                f"enable_liger_kernel does nothing in a model of kind {kind}",
                (at.label("left out"),),
                ("Current model does not support liger kernel: a line of the log says so",),
                "remove it",
                Fix((at.removed(),), "safe"),
            )


_PATCHED: Final = "llama"


@rule("warning", "silent", consumers=("llamafactory",), reads=("llamafactory:shift_attn",))
def shifted_attention_ignored(run: LintContext) -> Iterator[Finding]:
    """Shifted short attention is requested for a model that LLaMA-Factory cannot patch."""
    model = run.model
    for document in run.of("llamafactory"):
        at = document.get("shift_attn")
        if at is None or at.value is not True or model is None:
            continue
        if model.architecture.family == _PATCHED:
            continue
        yield Finding(
            f"shift_attn does nothing in {model.path} ({model.architecture.family})",
            (at.label("left out"),),
            ("only Llama's attention is patched; a line of the log says so",),
            "remove it",
            Fix((at.removed(),), "safe"),
        )


unsloth_on_several_devices = rows(
    "unsloth-on-several-devices",
    "warning",
    "step",
    consumers=("llamafactory",),
    rows=(
        Row(
            "llamafactory:use_unsloth=true",
            "use_unsloth with {1.value} processes",
            "for one device",
            "Unsloth currently does not support multi GPU setups, its free version says",
            "write enable_liger_kernel: true in its place, or train on one device",
            effective=("(slot:parallel.world>1)",),
            files_only=True,
        ),
    ),
)


_OWN = "disable_gradient_checkpointing"


@rule(
    "warning", "silent", consumers=("llamafactory",), reads=("llamafactory:gradient_checkpointing",)
)
def checkpointing_not_turned_off(run: LintContext) -> Iterator[Finding]:
    """LLaMA-Factory recomputes activations unless its own key turns that off."""
    for document in run.of("llamafactory"):
        said, own = document.get("gradient_checkpointing"), document.get(_OWN)
        if said is None:
            continue
        if said.value is False and (own is None or own.value is not True):
            yield _not_off(document, said, own)
        elif said.value is True and own is not None and own.value is True:
            yield _on_again(said, own)


def _not_off(document: Document, said: Place, own: Place | None) -> Finding:
    edit = own.replaced(True) if own else said.renamed(_OWN)
    edits = (edit,) if own else (edit, said.replaced(True))
    return Finding(
        "gradient_checkpointing: false does not turn it off",
        (said.label("LLaMA-Factory recomputes all the same"),),
        (f"it reads {_OWN}, which is false by default",),
        f"set {_OWN}: true",
        Fix(edits, "unsafe") if document.format == "yaml" else None,
    )


def _on_again(said: Place, own: Place) -> Finding:
    return Finding(
        f"gradient_checkpointing: true turns on what {_OWN} turns off",
        (own.label("does nothing"), said.label("turns it on", primary=False)),
        ("LLaMA-Factory's trainer inherits this from the Trainer, before the first step",),
        "remove one of the two",
    )


@rule("note", "silent", consumers=("llamafactory",), reads=("llamafactory:*",))
def experts_without_balancing(run: LintContext) -> Iterator[Finding]:
    """A router is trained without the load balancing loss."""
    if not experts(run) or has_adapter(run):
        return
    for document in run.of("llamafactory"):
        method = document.get("finetuning_type")
        coefficient = document.get("moe_aux_loss_coef")
        if method is None or method.value != "full":
            continue
        if coefficient is None or coefficient.value in (0, None):
            yield Finding(
                f"the router of {family(run)} is trained without its balancing loss",
                ((coefficient or method).label("no moe_aux_loss_coef"),),
                ("LLaMA-Factory requests router logits from the model only if it is set",),
                "write moe_aux_loss_coef: 0.001",
            )


SWITCH_NOT_IN_FORCE: Final = rows(
    "switch-not-in-force",
    "error",
    "silent",
    consumers=("llamafactory",),
    rows=(
        Row(
            "llamafactory:fp8=true",
            "fp8 true has no effect: training runs in another precision",
            "without effect",
            "its variables are set after the Accelerator that would read them is made",
            "use llamafactory 0.9.5, or remove fp8",
            since="llamafactory>=0.9.4,<0.9.5",
        ),
        Row(
            "llamafactory:use_muon=true",
            "use_muon true steps every weight by AdamW",
            "without effect",
            "Muon takes weights of two dimensions, and ZeRO stage 3 leaves each with one",
            "use ZeRO stage 2, or remove use_muon",
            effective=("deepspeed:zero_optimization.stage=3",),
        ),
    ),
)
