"""From a config to the architecture that transformers builds from it, on the meta device."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, Literal

import torch

from tunec.compiler.tracing.live.derivation.halves import Half, configs_of, halves_of
from tunec.compiler.tracing.live.derivation.layers import WINDOWS, part_of, tower_of
from tunec.compiler.tracing.live.derivation.measures import Measures, measures
from tunec.compiler.tracing.live.derivation.module_tree import module_tree
from tunec.compiler.tracing.live.derivation.remote_classes import classes_of, is_remote, told
from tunec.compiler.tracing.live.derivation.text_pass import Subject
from tunec.compiler.tracing.live.kernels import ATTENTION, register_attention
from tunec.compiler.tracing.live.model_builder import prepare
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module, Stack

_HEADS: Final = ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING")
_BOTH: Final = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
)
_MASKED: Final = "MODEL_FOR_MASKED_LM_MAPPING"
_PLACES: Final = (
    "max_position_embeddings",
    "max_encoder_position_embeddings",
    "max_decoder_position_embeddings",
    "max_target_positions",
    "max_seq_len",
)
"""Config keys that give the number of rows of a table of positions."""
_TABLES: Final = ("position_embeddings", "embed_positions", "wpe")
"""Names of the modules that hold tables of learned positions."""
_PRODUCTS: Final = ("linear", "conv", "router")
"""Kinds of the modules that multiply; Falcon's are of a class of its own alone (transformers 5.23
`models/falcon/modeling_falcon.py`, `FalconLinear`)."""
_CAPS: Final = ("final_logit_softcapping", "logits_soft_cap")
"""Config keys with the cap of the logits: Gemma's, and RecurrentGemma's."""
_LONGEST: Final = 4096
"""A number of tokens above the length of every measured sequence."""
_BEYOND: Final = 1 << 24
"""A number of tokens above the length of any sequence."""


def architecture_of(config: Mapping[str, Any], code: str | None = None) -> Architecture:
    """Build the class that a config names, and derive what the account needs from it.

    `code` is the directory of a model whose own code may be run if transformers has no class for
    it. Raises Untraceable with the reason if there is no class for the config, the class cannot be
    built from it, or its passes cannot be followed.
    """
    remote = is_remote(config) and code is not None
    made, maker = classes_of(config, str(code)) if remote else _classes(config)
    model = _built(maker, made)
    if made.is_encoder_decoder and not model.config.is_encoder_decoder:
        # transformers lists the decoders alone of some, such as Whisper's, with causal models
        raise Untraceable("its class is a decoder without the encoder that feeds it")
    made = model.config
    halves = halves_of(model)
    text = halves[-1].config
    stacks = [stack for half in halves for stack in half.stacks(model)]
    eager = _is_eager(maker, made)
    output = _output_of(model)
    head = _name_of(model, output)
    embedding = _embedding_of(model, output)
    modules = _parts(module_tree(model, embedding=embedding))
    if not any(each.kind in _PRODUCTS and "{}" in each.path for each in modules):
        raise Untraceable("its layers multiply by classes of its own, which a card does not read")
    measured = _reduced(_with_places(maker, made, model), halves)
    active = max((stack.experts.active for stack in stacks if stack.experts), default=1)
    kind = _kind(maker, made, modules)
    paths = {half.layers.path: half.first for half in halves}
    places = {place: half.positions for half in halves for place in half.places()}
    source = max(places.values())
    longest = _context(model, halves)
    asked = Subject(measured, paths, head, eager, active, source=source, longest=longest)
    # the account adds the mask of a fused kernel, and decoders make one for every sample
    found = measures(replace(asked, masked=eager and kind == "encoder"), places)
    return Architecture(
        family=str(config["model_type"]),
        kind=kind,
        modules=tuple(_counted(each, found, source) for each in modules),
        stacks=(*_tower(model), *_layered(kind, stacks, found)),
        hidden=text.hidden_size,
        vocab=output.weight.shape[0],
        context=longest,
        tied=output.weight is embedding.weight,
        logit_softcap=any(getattr(text, name, None) for name in _CAPS),
        head=head,
        embedding=_name_of(model, embedding),
        around=found.around,
        eager=eager,
        unpacked=found.unpacked,
        plain_loss=found.plain_loss,
        window=found.window,
        wide_stream=found.wide_stream,
        recomputes=maker.supports_gradient_checkpointing,
        remote_code=remote,
    )


def _parts(tree: Iterable[Module]) -> tuple[Module, ...]:
    """The modules, each with the part of the model that it belongs to."""
    return tuple(replace(each, part=part_of(each.path)) for each in tree)


def _layered(kind: str, stacks: Sequence[Stack], found: Measures) -> Iterator[Stack]:
    """The stacks of layers, completed with what was measured of each."""
    for stack, each in zip(stacks, found.layers, strict=True):
        yield replace(
            stack,
            causal=_is_causal(kind, stack),
            measured=each.measured,
            attends=each.attends,
            streams=found.streams,
        )


def _counted(module: Module, found: Measures, source: int) -> Module:
    """A module with the measured number of its calls, and the positions that it works on.

    A product may be read without a call, so that only one without a gradient is never reached.
    """
    beside = source if module.path in found.beside else 0
    wants = module.part == "text" and not module.fixed
    calls = found.calls.get(module.path, 1) if not wants or module.path in found.reached else 0
    return replace(module, calls=calls, positions=beside)


def _tower(model: Any) -> tuple[Stack, ...]:
    """The layers of the vision tower, by the config of the model or of one of its halves."""
    every = (model.config, *configs_of(model))
    seeing = (getattr(each, "vision_config", None) for each in every)
    return tower_of(model, next(filter(None, seeing), None))


def _reduced(model: Any, halves: Sequence[Half]) -> Any:
    """The model with only the layers that are measured, each of which attends to all tokens."""
    for half in halves:
        half.keep(model)
    for each in configs_of(model):
        _open_windows(each.get_text_config())
    return model


def _classes(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """The config and the model class that transformers has for it."""
    made = _config(config)
    return made, _maker(made, config)


def _kind(
    maker: Any, made: Any, modules: Iterable[Module]
) -> Literal["encoder", "encoder-decoder", "causal-lm", "vision-language"]:
    """The kind of a model class; transformers lists those that fill masks and attend both ways."""
    from transformers.models.auto import modeling_auto

    if made.is_encoder_decoder:
        return "encoder-decoder"
    if maker.__name__ in getattr(modeling_auto, f"{_MASKED}_NAMES").values():
        return "encoder"
    return "causal-lm" if all(each.part == "text" for each in modules) else "vision-language"


def _is_causal(kind: str, stack: Stack) -> bool:
    return stack.cross_attention > 0 if kind == "encoder-decoder" else kind != "encoder"


def _config(config: Mapping[str, Any]) -> Any:
    import transformers

    family = config.get("model_type")
    if family not in transformers.CONFIG_MAPPING:
        raise Untraceable(
            f"transformers {transformers.__version__} has no class for the family {family!r}"
        )
    try:
        made = transformers.CONFIG_MAPPING[family].from_dict(deepcopy(dict(config)))
        prepare(made)  # asks for the config of the text, and raises where there are several
    except Exception as fault:  # noqa: BLE001  whatever the config's own class says of it
        raise Untraceable(f"transformers refuses the config: {told(fault)}") from None
    return made


def _maker(made: Any, config: Mapping[str, Any]) -> Any:
    """The class that the config names, or the class with a language model head for its kind."""
    import transformers
    from transformers.models.auto import modeling_auto

    for named in config.get("architectures") or ():
        found = getattr(transformers, named, None)
        if found is not None and "For" in named:
            return found
    # a config with another one for its text is that of a model with pictures too
    written = _HEADS if made.get_text_config() is made else reversed(_HEADS)
    for table in (*(_BOTH if made.is_encoder_decoder else ()), *written, _MASKED):
        if type(made) in getattr(modeling_auto, table):
            return getattr(modeling_auto, table)[type(made)]
    raise Untraceable(
        f"transformers {transformers.__version__} has no class with a language model's head for "
        f"{config['model_type']!r}"
    )


def _built(maker: Any, made: Any) -> Any:
    """The model on meta; a class with a table of attentions of its own takes that of torch.

    The name of an attention goes into the configs of all parts, so that each try takes a copy.
    """
    name = "eager" if _is_eager(maker, made) else register_attention(padded=False)
    with torch.device("meta"):
        try:
            try:
                return maker._from_config(deepcopy(made), attn_implementation=name)  # noqa: SLF001
            except KeyError as fault:
                if fault.args != (ATTENTION,):
                    raise
                return maker._from_config(made, attn_implementation="sdpa")  # noqa: SLF001
        except Exception as fault:  # noqa: BLE001  whatever the model's own class raises
            raise Untraceable(f"{maker.__name__} cannot be built: {told(fault)}") from None


def _is_eager(maker: Any, made: Any) -> bool:
    """Whether a class does not support torch's fused attention, or its config caps the scores.

    transformers 5.23 `integrations/sdpa_attention.py` raises if `softcap` is passed to it.
    """
    capped = getattr(made.get_text_config(), "attn_logit_softcapping", None)
    return bool(capped) or not maker._supports_sdpa  # noqa: SLF001  what transformers asks


def _with_places(maker: Any, made: Any, model: Any) -> Any:
    """The model, or a similar one with enough positions for the measured lengths.

    A table of learned positions ends at the longest sequence; the memory of layers follows the same
    curves beyond it.
    """
    wide = deepcopy(made)
    short = [
        (config, name)
        for config in _text_configs(wide)
        for name in _PLACES
        if 0 < (getattr(config, name, None) or 0) < _LONGEST
    ]
    for config, name in short:
        setattr(config, name, _LONGEST)
    return _built(maker, wide) if short else model


def _text_configs(made: Any) -> list[Any]:
    """The configs of a model's text: a single one, or those of an encoder and its decoder."""
    if not made.is_encoder_decoder:
        return [made.get_text_config()]
    return [made, *(each for name in ("encoder", "decoder") if (each := getattr(made, name, None)))]


def _open_windows(config: Any) -> None:
    """Let layers attend to all tokens; the account adds the memory of a window's mask."""
    differing = getattr(config, "_heterogeneity_spec", None)  # what a layer has for itself
    of_layers = differing.per_layer_overrides.values() if differing is not None else ()
    for name in WINDOWS:
        for each in (each for each in of_layers if each.get(name)):
            each[name] = _BEYOND
        is_shared = differing is None or name not in differing.per_layer_attributes
        if is_shared and getattr(config, name, None):
            setattr(config, name, _BEYOND)


def _context(model: torch.nn.Module, halves: Sequence[Half]) -> int:
    """The longest sequence by the configs, or by a table of positions that ends earlier.

    Such tables hold rows that stand for no token: the rows up to that of padding in RoBERTa's
    classes, `offset` rows in BART's.
    """
    every = (getattr(half.config, name, None) for half in halves for name in _PLACES)
    said = min((each for each in every if each), default=0)
    tables = (
        each.num_embeddings - getattr(each, "offset", _padding(each))
        for name, each in model.named_modules()
        if name.endswith(_TABLES) and isinstance(each, torch.nn.Embedding)
        if part_of(name) == "text" and each.num_embeddings >= said
    )
    return min((said, *tables)) if said else 0


def _padding(table: torch.nn.Embedding) -> int:
    return 0 if table.padding_idx is None else table.padding_idx + 1


def _output_of(model: Any) -> torch.nn.Module:
    """The output projection, which some classes do not declare to transformers."""
    named = (m for name, m in model.named_modules() if name.endswith("lm_head"))
    found: torch.nn.Module | None = model.get_output_embeddings() or next(named, None)
    if found is None:
        raise Untraceable("the model has no output projection, so there is no language to learn")
    return found


def _embedding_of(model: Any, output: torch.nn.Module) -> torch.nn.Module:
    """The token embedding; of an encoder's and a decoder's own, the one that the head shares."""
    found: torch.nn.Module = model.get_input_embeddings()
    if model.config.is_encoder_decoder and found.weight is not output.weight:
        own: torch.nn.Module = model.get_decoder().get_input_embeddings()
        return own if own.weight is output.weight else found
    return found


def _name_of(model: torch.nn.Module, module: torch.nn.Module) -> str:
    names: dict[int, str] = {id(each): name for name, each in model.named_modules()}
    return names[id(module)]
