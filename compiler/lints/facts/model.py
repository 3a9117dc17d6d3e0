"""The run's model: experts, images, its module tree, and the names and blocks of its layers.

Layer names are for models that are not in the catalogue. A repository name that fits only one
family identifies the family; its layer names are those of the class in transformers 5.23.0,
models/*/modeling_*.py (Linear, Conv1D and Embedding modules; listed from the classes themselves),
for Baichuan, InternLM, InternLM2 and Qwen of 2023 those of modeling_*.py in their repositories.
Heads are left out, as every family has one. Names from other versions of a class are included:
separate experts before transformers 5, phi-1_5's first code.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, also
from tunec.compiler.lints.facts.lora import Targets, adapters
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.schemas.models.architecture import Architecture, Module, Stack


BLOCKS: Final[Mapping[str, str]] = {
    "mixtral": "MixtralSparseMoeBlock",
    "qwen2_moe": "Qwen2MoeSparseMoeBlock",
    "qwen3_moe": "Qwen3MoeSparseMoeBlock",
    "deepseek_v2": "DeepseekV2MoE",
    "deepseek_v3": "DeepseekV3MoE",
    "olmoe": "OlmoeSparseMoeBlock",
    "jamba": "JambaSparseMoeBlock",
    "dbrx": "DbrxFFN",
    "phimoe": "PhimoeSparseMoeBlock",
}
"""The block that contains the experts, by model_type: transformers 4.57.6 models/*/modeling_*.py,
and LLaMA-Factory 0.9.5 model/model_utils/moe.py `add_z3_leaf_module`."""

_FAMILIES_BY_NAME: Final[Mapping[str, str]] = {
    r"mixtral-8x": "mixtral",
    r"qwen1\.5-moe|qwen2-57b-a14b": "qwen2_moe",
    r"qwen3-(?:coder-)?\d+b-a\d+b": "qwen3_moe",
    r"deepseek-(?:coder-)?v2": "deepseek_v2",
    r"deepseek-(?:v3|r1)(?!.*(?:distill|qwen|llama))": "deepseek_v3",
    r"olmoe-": "olmoe",
    r"jamba-(?:v0|mini|large|1\.)": "jamba",
    r"/dbrx-": "dbrx",
    r"phi-3\.5-moe": "phimoe",
}
"""Patterns of model names, whether or not in the catalogue, and the `model_type` of their
config.json."""


Resolve = Callable[[str], "ResolvedModel | None"]


def as_loaded(documents: Sequence[Document], resolve: Resolve) -> Resolve:
    """Resolves names as the files load them: to their text alone, if Axolotl is given that config.

    axolotl 0.13.2 to 0.19.0 loaders/utils.py `load_model_config`: `cls_model_config` reads the
    config, of which a class of text takes `text_config`.
    """
    asked = [each.value("cls_model_config") for each in documents if each.kind == "axolotl"]
    is_text = any(str(each).endswith("TextConfig") for each in asked)
    return partial(_text_alone, resolve) if is_text else resolve


def _text_alone(resolve: Resolve, name: str) -> "ResolvedModel | None":
    found = resolve(name)
    config = found.card.config.get("text_config") if found and found.card else None
    if found is None or not isinstance(config, dict):
        return found
    from tunec.compiler.resolve import resolve_model
    from tunec.schemas.spec import InlineModel

    return resolve_model(InlineModel(path=found.path, config=config), Path())


def experts(run: LintContext) -> int:
    """The largest number of experts in a layer; 0 if there are none or the model is unknown."""
    if run.model is None:
        return 0
    counts = (each.experts.count for each in run.model.architecture.stacks if each.experts)
    return max(counts, default=0)


def family(run: LintContext) -> str:
    """The model's `model_type`; empty if the model is unknown."""
    return run.model.architecture.family if run.model is not None else ""


def named_family(run: LintContext) -> str:
    """The `model_type` of a model with experts, from its name alone; empty if unknown."""
    name = (run.model_name or "").lower()
    return next((kind for each, kind in _FAMILIES_BY_NAME.items() if re.search(each, name)), "")


_NAMES_OF_SEEING: Final = re.compile(
    r"(?i)qwen\d?(\.\d)?-?vl|qvq-|llava|paligemma|idefics|smolvlm|internvl|pixtral|molmo|"
    r"minicpm-(v|o|llama3-v)|[-_]vision|deepseek-vl|kimi-vl|glm-4(\.\d)?v|aya-vision|ovis"
)
"""Models outside the catalogue that accept images: image processors of transformers 4.57.1 and
5.23.0 models/auto/processing_auto.py, by the names of their repositories."""


def sees(run: LintContext) -> bool:
    """Whether the model accepts images; False if neither the model nor its name is known."""
    if run.model is not None:
        return run.model.architecture.kind == "vision-language"
    named = run.model_name
    return named is not None and _NAMES_OF_SEEING.search(named) is not None


_APART: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
_GATED: Final = ("gate_proj", "up_proj", "down_proj", "embed_tokens")
_LLAMA: Final = (*_APART, *_GATED)
_BERT: Final = ("query", "key", "value", "dense", "word_embeddings", "position_embeddings")
_BART: Final = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "embed_tokens")
_BIAS: Final = "relative_attention_bias"
_FUSED: Final = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")
_GPT2: Final = ("c_attn", "c_proj", "c_fc", "wte", "wpe")

FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    r"(^|/)(meta-)?llama-(2|3|3\.[0-3])-|(^|/)llama-(7|13|30|65)b": ("Llama", _LLAMA),
    r"(^|/)(codellama|tinyllama|vicuna|open_llama|smollm2?)[-_]": ("Llama", _LLAMA),
    r"(^|/)(yi-(1\.5-)?\d+b|deepseek-(llm|coder)-[\d.]+b)": ("Llama", _LLAMA),
    r"(^|/)(mistral-(7b|nemo)|zephyr-7b)": ("Mistral", _LLAMA),
    r"(^|/)mixtral-8x": ("Mixtral", (*_APART, "embed_tokens", "w1", "w2", "w3", "gate")),
    r"(^|/)(qwen(1\.5|2|2\.5|3)-(coder-|math-)?[\d.]+b|qwq-32b)": (
        "Qwen",
        (*_LLAMA, "gate", "shared_expert_gate"),
    ),
    r"(^|/)qwen2(\.5)?-vl-": ("Qwen2-VL", (*_LLAMA, "qkv", "proj", "fc1", "fc2", "0", "2")),
    r"(^|/)(code)?gemma-((1\.1-)?[27]b|2-)": ("Gemma", _LLAMA),
    r"(^|/)phi-(1|1_5|1\.5|2)$": (
        "Phi-2",
        ("q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "embed_tokens", "Wqkv", "out_proj"),
    ),
    r"(^|/)stablelm-(2|3b|zephyr)-": ("StableLM", _LLAMA),
    r"(^|/)starcoder2-\d+b": ("StarCoder2", (*_APART, "c_fc", "c_proj", "embed_tokens")),
    r"(^|/)(c4ai-command-r|aya-(23|expanse))": ("Cohere", _LLAMA),
    r"(^|/)deepseek-(v[23](\.\d)?|coder-v2)(-|$)": (
        "DeepSeek-V2",
        (
            *("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
            *(*_GATED, "gate"),
        ),
    ),
    r"(^|/)internlm-(chat-)?\d+b": ("InternLM", _LLAMA),
    r"(^|/)(bert|roberta|xlm-roberta)-(base|large)": ("BERT", (*_BERT, "token_type_embeddings")),
    r"(^|/)distilbert-base-": (
        "DistilBERT",
        (
            *("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2", "pre_classifier"),
            *("word_embeddings", "position_embeddings"),
        ),
    ),
    r"(^|/)deberta-v[23]-": (
        "DeBERTa",
        ("query_proj", "key_proj", "value_proj", "dense", "word_embeddings", "position_embeddings"),
    ),
    r"^openai/whisper-": ("Whisper", (*_BART, "embed_positions", "conv1", "conv2")),
    r"^facebook/m?bart-": ("BART", (*_BART, "embed_positions", "shared")),
    r"bloomz?[-_]": ("BLOOM", (*_FUSED, "word_embeddings")),
    r"falcon-?(rw-|7b|40b|180b)": ("Falcon", (*_FUSED, "word_embeddings")),
    r"pythia-|gpt-neox": ("GPT-NeoX", (*_FUSED, "embed_in", "embed_out", "lm_head")),
    r"chatglm\d?-": ("ChatGLM", (*_FUSED, "word_embeddings", "output_layer")),
    r"^(openai-community/|)(distil)?gpt2(-medium|-large|-xl|)$": ("GPT-2", _GPT2),
    r"starcoder(base|plus|)(-\d+b|)$|santacoder": ("GPTBigCode", _GPT2),
    r"^mosaicml/mpt-": ("MPT", ("Wqkv", "out_proj", "up_proj", "down_proj", "wte")),
    r"phi-3(\.5)?-(mini|medium)": (
        "Phi-3",
        ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "embed_tokens"),
    ),
    r"flan-t5-|^google-t5/|^google/(mt5|t5)-": (
        "T5",
        ("q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo", "shared", "embed_tokens", _BIAS),
    ),
    r"^facebook/opt-": ("OPT", (*_BART, "embed_positions", "project_in", "project_out")),
    r"gpt-j-": ("GPT-J", ("q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out", "wte")),
    r"codegen-": ("CodeGen", ("qkv_proj", "out_proj", "fc_in", "fc_out", "wte")),
    r"baichuan2?-\d+b": (
        "Baichuan",
        ("W_pack", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens"),
    ),
    r"internlm2(_5)?-": ("InternLM2", ("wqkv", "wo", "w1", "w2", "w3", "tok_embeddings", "output")),
    r"^qwen/qwen-(1_8|7|14|72)b": ("Qwen of 2023", ("c_attn", "c_proj", "w1", "w2", "wte")),
}
"""By a pattern of the repository name: the family's usual name, and its layers' names."""
HEADS: Final = frozenset({"lm_head", "output_layer", "embed_out", "score", "classifier"})
_UNSURE: Final = re.compile(r"vision|moondream|audio|llava|internvl|omni|video", re.IGNORECASE)


def family_of(repository: str) -> tuple[str, frozenset[str]] | None:
    """The family that a repository's name identifies with certainty, and its layer names."""
    if _UNSURE.search(repository):
        return None
    for pattern, (name, layers) in FAMILIES.items():
        if re.search(pattern, repository, re.IGNORECASE):
            return name, frozenset(layers) | HEADS
    return None


class NoRegex(ValueError):
    """A string is not a regular expression; the message gives the reason."""


@cached(256)
def adapted(
    architecture: "Architecture", targets: Targets, excluded: tuple[str, ...] = ()
) -> "tuple[Module, ...]":
    """The modules that PEFT adapts. Raises NoRegex for a string that is no regular expression.

    If PEFT refuses the targets for another reason (`HalfTarget`), only the first module is
    returned.
    """
    from tunec.compiler.analyses.architecture import matching
    from tunec.compiler.analyses.architecture.lora import HalfTarget

    try:
        return matching(architecture, targets, excluded)
    except re.error as fault:
        raise NoRegex(str(fault)) from None
    except HalfTarget:
        return tuple(architecture.modules)[:1]  # refused for a reason of its own


def unmatched(architecture: "Architecture", names: Iterable[str]) -> tuple[str, ...]:
    """The names of a list that match no module of the tree."""
    return tuple(name for name in names if not adapted(architecture, (name,)))


@cached(64)
def parts(architecture: "Architecture") -> frozenset[str]:
    """All parts of dotted module names: blocks such as `self_attn` as well as layers."""
    paths = [each.path for each in architecture.modules]
    head = [architecture.head] if architecture.head else []
    return frozenset(part for path in (*paths, *head) for part in path.split(".") if part != "{}")


@cached(64)
def leaves(architecture: "Architecture", kinds: tuple[str, ...]) -> frozenset[str]:
    """The last name parts of the modules of some kinds."""
    found = (each.path for each in architecture.modules if each.kind in kinds)
    return frozenset(path.rpartition(".")[2] for path in found)


def layers(architecture: "Architecture") -> int:
    """The number of layers in the longest text stack; 0 if there is none."""
    return max((each.layers for each in architecture.stacks if each.part == "text"), default=0)


def has_whole_heads(stack: "Stack", width: int) -> bool:
    """Whether Ulysses can give each of its processes whole heads: those of keys are repeated."""
    shared = stack.kv_heads
    return stack.heads % width == 0 and (shared % width == 0 or width % shared == 0)


def usual(architecture: "Architecture") -> tuple[str, ...]:
    """The names of linear layers in the repeated layers of the text model or denoiser, in order."""
    found = (
        each.path.rpartition(".")[2]
        for each in architecture.modules
        if each.kind == "linear" and each.part in ("text", "denoiser") and "{}" in each.path
    )
    return tuple(dict.fromkeys(found))


_SIZES: Final = {
    "OFT": (("oft_block_size", 32), ("r", 0)),
    "BOFT": (("boft_block_size", 4), ("boft_block_num", 0)),
}
"""The keys of the block size and the number of blocks, with defaults: each follows from the other.
peft 0.15.2 to 0.21.2 tuners/oft/config.py, 0.13.2 to 0.21.2 tuners/boft/config.py."""


def refused_block_sizes(run: LintContext) -> Iterator[Finding]:
    """Findings about refused block sizes of OFT and BOFT."""
    for document in run.of("peft"):
        kind = str(document.value("peft_type"))
        if document.is_view or kind not in _SIZES:
            continue
        found = list(_both(document, kind))
        yield from found or (_undivided(run, document) if kind == "BOFT" else ())


def _both(document: Document, kind: str) -> Iterator[Finding]:
    """Report if block size and number are both set or both unset; defaults count."""
    (size_key, size_default), (count_key, count_default) = _SIZES[kind]
    size = _number(document.value(size_key, size_default))
    count = _number(document.value(count_key, count_default))
    at = document.get(size_key) or document.get(count_key)
    if at is None or size is None or count is None or bool(size) is not bool(count):
        return
    other = document.get(count_key) if document.get(size_key) else None
    yield Finding(
        f"{kind} with {count_key} {count} and {size_key} {size}",
        (at.label("refused"), *also(other)),
        ("each follows from the other: one of the two is 0",),
        f"write {count_key}: 0, or {size_key}: 0",
    )


def _undivided(run: LintContext, document: Document) -> Iterator[Finding]:
    """A block that does not divide the inputs of a layer; OFT takes another one instead."""
    for key in ("boft_block_size", "boft_block_num"):
        at, size = document.get(key), _number(document.value(key))
        if at is None or not size:
            continue
        inputs = _inputs(run, document)
        lost = next((each for each in inputs if each % size), None)
        if size % 2 and where(document, "boft_n_butterfly_factor>1") is not None:
            why = f"{key} {size} is odd, and boft_n_butterfly_factor is above 1"
        elif lost is not None:
            why = f"{key} {size} does not divide the {lost} inputs of a layer"
        else:
            continue
        yield replace(
            Finding(why, (at.label("refused"),), (), "write a power of two"), consequence="init"
        )


def _inputs(run: LintContext, document: Document) -> tuple[int, ...]:
    """How many inputs the adapted layers have, where the model is known."""
    mine = next((each for each in adapters(run) if each.document is document), None)
    if run.model is None or mine is None or not mine.targets:
        return ()
    try:
        found = adapted(run.model.architecture, mine.targets, mine.excluded)
    except NoRegex:
        return ()
    return tuple(dict.fromkeys(each.shape[1] for each in found if each.kind == "linear"))


def _number(value: Any) -> int | None:
    return value if is_whole(value) else None
