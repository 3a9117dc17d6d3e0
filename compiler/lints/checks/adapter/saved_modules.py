"""Modules that are trained in full beside the adapter."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.analyses.trainable import modules_to_save
from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.lora import (
    ALL_LINEAR,
    Lora,
    adapters,
    is_plain,
    last,
    lora_keys,
    loras,
)
from tunec.compiler.lints.facts.model import HEADS, parts
from tunec.compiler.lints.facts.precision import QUANTISED, Base, quantised
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.kinds import is_fragment
from tunec.compiler.lints.rule import Finding, keys, rule

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Architecture, Module


@rule("warning", "silent", consumers=("peft",), reads=lora_keys("modules_to_save"))
def module_adapted_and_saved(run: LintContext) -> Iterator[Finding]:
    """A module is both a target of LoRA and listed in `modules_to_save`."""
    for lora in adapters(run):
        saved, target = lora.place("modules_to_save"), lora.place("target_modules")
        if saved is None or target is None or not isinstance(lora.targets, tuple):
            continue
        named = {last(each) for each in lora.targets}
        both = [each for each in lora.saved if last(each) in named]
        if both:
            yield Finding(
                f"{quoted(both, 'and')} is a target of {lora.method} and in modules_to_save too",
                (target.label("not adapted"), saved.label("trained in full", primary=False)),
                ("a full copy is trained and saved: far more memory than an adapter takes",),
                "name it in one of the two",
            )


_PLAIN = ("peft", "glm4")
"""Kinds whose value is passed to PEFT unchanged; the others split the value at commas or refuse
it."""


@rule("error", "silent", consumers=("peft",), reads=lora_keys("modules_to_save"))
def modules_to_save_as_text(run: LintContext) -> Iterator[Finding]:
    """`modules_to_save` is a string, whose letters PEFT takes as names."""
    for lora in adapters(run):
        at = lora.place("modules_to_save")
        if at is not None and at.word and lora.document.kind in _PLAIN:
            yield _text_finding(at, at.word)


def _text_finding(at: Place, text: str) -> Finding:
    names = [each.strip() for each in text.split(",") if each.strip()]
    return Finding(
        f"modules_to_save is the text {text}, not a list",
        (at.label("each of its letters is a name"),),
        (
            (
                "a module is trained in full where its name ends with one of them: nearly all "
                "are, beside the adapters"
            ),
        ),
        f"write {names}",
        Fix((at.replaced(names),), "unsafe"),
    )


_OF_TASKS: Final = frozenset({"qa_outputs", "v_head", "summary", "pooler", "pre_classifier"})
"""Heads that are added to a model for a task: transformers 5.23.0 modeling_layers.py
`GenericForQuestionAnswering`, trl's AutoModelForCausalLMWithValueHead."""


@rule("warning", "silent", consumers=("peft",), reads=lora_keys("modules_to_save"))
def modules_to_save_missing(run: LintContext) -> Iterator[Finding]:
    """`modules_to_save` names modules that the model does not have."""
    if run.model is None:
        return
    tree = run.model.architecture
    for lora in adapters(run):
        at = lora.place("modules_to_save")
        if at is None:
            continue
        heads = HEADS if not tree.head else HEADS - {"lm_head", "output_layer", "embed_out"}
        if lora.value("task_type", "CAUSAL_LM") != "CAUSAL_LM":
            heads = HEADS | _OF_TASKS
        lost = [
            each
            for each in lora.saved
            if is_plain(each) and last(each) not in parts(tree) and last(each) not in heads
        ]
        if lost:
            yield Finding(
                f"{quoted(lost, 'and')} of modules_to_save is no module of {run.model.path}",
                (at.label("trains nothing"),),
                (f"its embedding is {tree.embedding}, its head {tree.head}",),
                f"write {last(tree.embedding)} and {last(tree.head)}",
            )


_BITSANDBYTES: Final = frozenset({"nf4", "fp4", "int8"})


@rule("error", "init", consumers=("peft",), reads=(*QUANTISED, *lora_keys("modules_to_save")))
def saved_module_quantised(run: LintContext) -> Iterator[Finding]:
    """`modules_to_save` names linear layers that bitsandbytes stores in 4 or 8 bits."""
    base = quantised(run)
    if base is None or base.form not in _BITSANDBYTES or run.model is None or _skips(base):
        return
    tree = run.model.architecture
    for lora in adapters(run):
        at = lora.place("modules_to_save")
        stored = [each for each in lora.saved if is_plain(each) and _is_stored(tree, each)]
        if at is not None and stored:
            yield Finding(
                f"{quoted(stored, 'and')} of modules_to_save is stored in few bits",
                (at.label("cannot be trained in full"), *also(base.place, base.form)),
                ("only Tensors of floating point dtype can require gradients",),
                "put it among the adapter's targets instead, or load the base in 16 bits",
            )


def _skips(base: Base) -> bool:
    """Whether a file leaves modules out of quantisation."""
    block = base.place.path.rpartition(".")[0]
    return bool(block) and base.document.get(f"{block}.llm_int8_skip_modules") is not None


def _is_stored(tree: "Architecture", name: str) -> bool:
    found = modules_to_save(tree, (name,))
    return any(m.kind == "linear" and m.part == "text" and m.path != tree.head for m in found)


_EMBEDDINGS = frozenset({"embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings"})
_WITHOUT = re.compile(
    r"(^|[/_-])(llama-[23][-b.]|llama-2|meta-llama-3|mistral-7b(-instruct)?-v0|mixtral-8x)"
)
"""Models of Meta and Mistral, whose tokenizers have no ChatML tokens; renamed fine-tunes may have
them."""
_BOTH_ENDS = (
    frozenset({"embed_tokens", "lm_head"}),
    frozenset({"embed_in", "embed_out"}),
    frozenset({"word_embeddings", "lm_head"}),
    frozenset({"embeddings", "lm_head"}),
)
"""axolotl 0.8.1 utils/lora_embeddings.py, 0.19.0 loaders/utils.py `get_linear_embedding_layers`:
the names for most models, for GPT-NeoX, for Falcon, and (0.18) for Nemotron-H."""
_OF_FACTORY: Final = ("new_special_tokens", "add_tokens", "add_special_tokens")


@rule(
    "error",
    "silent",
    consumers=("peft",),
    reads=(*keys("axolotl", "tokens", "special_tokens"), *keys("llamafactory", *_OF_FACTORY)),
)
def new_tokens_not_trained(run: LintContext) -> Iterator[Finding]:
    """Tokens are added, but their embeddings are neither trained nor saved."""
    for lora in loras(run):
        if lora.document.kind == "axolotl" and not _saves_both_ends(lora):
            yield from _refused(lora)
            yield from _changed(lora)
        at = _added(lora)
        if at is None or _is_trained(lora):
            continue
        if lora.document.kind == "llamafactory" and not lora.saved:
            continue  # it then trains both ends itself
        yield Finding(
            "tokens are added, and LoRA leaves their embeddings as they were initialised",
            (at.label("new rows, which nothing trains"),),
            ("a row that is never trained is noise in the input, and never predicted",),
            f"add {lora.key('modules_to_save')}: [embed_tokens, lm_head]",
            severity="warning",
        )


def _saves_both_ends(lora: Lora) -> bool:
    """Whether Axolotl finds the embedding and the head among the modules that are saved in full."""
    saved = frozenset(lora.saved)
    return any(each <= saved for each in _BOTH_ENDS) or "lora_modules_to_save" in (
        lora.document.unknown
    )


def _refused(lora: Lora) -> Iterator[Finding]:
    """Axolotl refuses new tokens beside an adapter that does not save both ends."""
    at, adapter = lora.document.get("tokens"), lora.document.get("adapter")
    if at is not None and adapter is not None and at.value:
        yield Finding(
            f"tokens are added, and adapter {adapter.value} does not train their rows",
            (at.label("refused"), adapter.label("", primary=False)),
            ("`lora_modules_to_save` not properly set when adding new tokens",),
            "add lora_modules_to_save: [embed_tokens, lm_head]",
            severity="warning" if _may_be_saved(lora.document) else None,
            consequence="load",
        )


def _may_be_saved(document: Document) -> bool:
    """Whether the file is a fragment that may leave out `lora_modules_to_save`."""
    return is_fragment(document) and document.get("lora_modules_to_save") is None


def _changed(lora: Lora) -> Iterator[Finding]:
    """Report special tokens that Axolotl refuses: new to the tokenizer, with rows not trained."""
    base = str(lora.document.value("base_model") or "").lower()
    if not _WITHOUT.search(base):
        return
    more = lora.document.get("special_tokens.additional_special_tokens")
    words = more.value if more is not None and isinstance(more.value, list) else ()
    if more is not None and any(str(each).startswith("<|im_") for each in words):
        yield Finding(
            "special tokens are added, and LoRA leaves their embeddings as they were initialised",
            (more.label("new rows, which nothing trains"),),
            ("only those under names of their own, such as eos_token, are asked about",),
            "add lora_modules_to_save: [embed_tokens, lm_head]",
            severity="warning",
        )
    for key in ("eos_token", "bos_token", "unk_token"):
        at = lora.document.get(f"special_tokens.{key}")
        if at is not None and str(at.value).startswith("<|im_"):
            yield Finding(
                f"{at.value} is no token of {lora.document.value('base_model')}",
                (at.label("refused"),),
                ("Please set `lora_modules_to_save` when changing the special tokens",),
                "add lora_modules_to_save: [embed_tokens, lm_head]",
                consequence="load",
            )


def _added(lora: Lora) -> Place | None:
    said = _OF_FACTORY if lora.document.kind == "llamafactory" else ()
    found = map(lora.document.get, said)
    return next((at for at in found if at is not None and at.value), None)


def _is_trained(lora: Lora) -> bool:
    if lora.value("trainable_token_indices") or lora.document.value("lora_model_dir"):
        return True
    targets = lora.targets if isinstance(lora.targets, tuple) else ()
    if isinstance(lora.targets, str) and lora.targets != ALL_LINEAR:
        return True
    return any(last(each) in _EMBEDDINGS for each in (*lora.saved, *targets))


_LARGE: Final = frozenset(
    {
        *("embed_tokens", "tok_embeddings", "word_embeddings", "embed_in", "wte", "shared"),
        *("lm_head", "output_layer", "embed_out", "ff_out"),
    }
)
"""Names of token embeddings, and of heads of the same size, by family."""
_GIB: Final = 1 << 30
_BYTES: Final = 16
"""Bytes per trained parameter in 16 bits: copy 2, gradient 2, fp32 master 4, AdamW's moments 8."""


@rule(
    "warning", "out-of-memory", consumers=("peft", "deepspeed"), reads=lora_keys("modules_to_save")
)
def saved_module_under_zero_3(run: LintContext) -> Iterator[Finding]:
    """Embeddings or heads are trained in full beside LoRA under ZeRO stage 3."""
    stage = stage_of(run)
    if stage.value != 3 or stage.place is None:
        return
    for lora in loras(run):
        at = lora.place("modules_to_save")
        large = [each for each in lora.saved if last(each) in _LARGE]
        if at is None or not large:
            continue
        terms = _terms(run, large)
        yield Finding(
            f"{quoted(large, 'and')} of modules_to_save is copied whole before stage 3 shards it",
            (at.label("a second copy, trained in full"), *also(stage.place)),
            (
                "reported to stay whole on each device, or to keep a shape of [0, hidden]",
                *_size(terms),
            ),
            "train single rows with trainable_token_indices (peft 0.15), or use stage 2",
            sum=terms,
        )


def _terms(run: LintContext, names: list[str]) -> tuple[Term, ...]:
    count = sum(each.parameters for each in _modules(run) if last(each.path) in set(names))
    if not count:
        return ()
    return (
        Term("parameters", count, "parameters"),
        Term("bytes of a trained parameter", _BYTES, "bytes"),
    )


def _modules(run: LintContext) -> "tuple[Module, ...]":
    return () if run.model is None else tuple(run.model.architecture.modules)


def _size(terms: tuple[Term, ...]) -> tuple[str, ...]:
    if not terms:
        return ()
    size = terms[0].value * _BYTES / _GIB
    return (f"whole they take {size:.1f} GiB of each device with gradient and AdamW's states",)


@rule(
    "warning", "silent", consumers=("peft",), reads=lora_keys("target_modules", "modules_to_save")
)
def tied_layer_adapted(run: LintContext) -> Iterator[Finding]:
    """An end of tied embeddings is adapted or trained without `ensure_weight_tying`."""
    if run.model is None or not run.model.architecture.tied:
        return
    tree = run.model.architecture
    ends = (last(tree.embedding), last(tree.head))
    for lora in loras(run):
        if lora.value("ensure_weight_tying") is True:
            continue
        for at, names in _requested(lora):
            touched = [each for each in names if last(each) in ends]
            if touched:
                yield _tied_finding(run, lora, at, touched)
                break


def _requested(lora: Lora) -> Iterator[tuple[Place, tuple[str, ...]]]:
    targets, saved = lora.place("target_modules"), lora.place("modules_to_save")
    if targets is not None and isinstance(lora.targets, tuple):
        yield targets, lora.targets
    if saved is not None:
        yield saved, lora.saved


def _tied_finding(run: LintContext, lora: Lora, at: Place, touched: list[str]) -> Finding:
    can_tie = lora.knows("ensure_weight_tying") and run.runs("peft>=0.18") is not False
    edit = lora.document.added(lora.key("ensure_weight_tying"), value=True) if can_tie else None
    return Finding(
        f"{quoted(touched, 'and')} is one end of a tied weight, and the two come apart",
        (at.label("embedding and head share this weight"),),
        (
            "the adapter or copy changes one of the two uses; merged or converted models lose it",
            "PEFT only warns",
        ),
        "write ensure_weight_tying: true" if can_tie else "leave tied layers out",
        Fix((edit,), "unsafe") if edit is not None else None,
    )
