"""Build the real model of a config without weights, and adapt it as the plan trains it."""

import importlib
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import torch

from tunec.compiler.analyses.architecture import rank_factor
from tunec.compiler.analyses.memory.modules import is_stack, quantizes
from tunec.compiler.tracing.live.bitsandbytes_layers import quantize
from tunec.compiler.tracing.live.kernels import register_attention
from tunec.compiler.tracing.live.segments import needs_segments, recompute_in_segments
from tunec.compiler.tracing.live.trl_loss import add_head, is_trls
from tunec.compiler.tracing.subject import Subject, Untraceable

DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_FIRST: Final = "decoder_start_token_id"
_AUTO: Final = {
    "causal-lm": "AutoModelForCausalLM",
    "vision-language": "AutoModelForImageTextToText",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
    "encoder": "AutoModelForMaskedLM",
    "sequence-classifier": "AutoModelForSequenceClassification",
    "token-classifier": "AutoModelForTokenClassification",
}


def build(subject: Subject) -> torch.nn.Module:
    """Build, quantise, adapt and freeze the model of a subject, on the meta device.

    Raises Untraceable if the model's own code would be needed.
    """
    model = _diffusers(subject) if "_class_name" in subject.config else _transformers(subject)
    states = subject.layout.states
    full = not subject.is_adapted
    model.to(DTYPES[states.trainable if full else states.weights])
    _quantize(subject, model)
    model = _adapt(subject, model) if subject.is_adapted else _freeze(subject, model)
    model.train()
    if is_trls(subject):
        add_head(subject, model)
    if subject.is_checkpointed and not subject.layout.fsdp.checkpointing:
        _checkpoint(subject, model)
    return model


def reference_of(subject: Subject) -> torch.nn.Module | None:
    """The second model of a preference method that holds one, in the dtype of the first."""
    asked = subject.workload.preference
    if asked is None or asked.reference != "resident":
        return None
    if subject.layout.parallel.engine in ("deepspeed", "fsdp"):
        raise Untraceable("a reference model beside a sharded one is not traced")
    model = _transformers(subject)
    model.to(DTYPES[subject.layout.states.weights]).requires_grad_(requires_grad=False).eval()
    add_head(subject, model)
    return model


def _transformers(subject: Subject) -> torch.nn.Module:
    import transformers

    family = subject.config.get("model_type")
    if subject.workload.architecture.remote_code or family not in transformers.CONFIG_MAPPING:
        raise Untraceable(
            f"the family {subject.family!r} is built by code in the model's own repository "
            f"(trust_remote_code), which a trace does not run; transformers "
            f"{transformers.__version__} has no class for it"
        )
    config = transformers.CONFIG_MAPPING[family].from_dict(deepcopy(dict(subject.config)))
    prepare(config)
    if subject.workload.architecture.kind == "sequence-classifier":
        # otherwise the first labels decide, which the meta device does not hold
        config.problem_type = "single_label_classification"
        # its last token is the last one that is no padding: trainers fill in what is absent
        config.pad_token_id = config.pad_token_id or 0
    maker = _maker(subject, transformers)
    wanted = subject.workload.attention.implementation
    eager = wanted == "eager" or (wanted == "sdpa" and not maker._supports_sdpa)  # noqa: SLF001
    name = (
        "eager" if eager else register_attention(padded=subject.is_padded, flash=subject.is_flash)
    )
    with torch.device("meta"):
        try:
            model: torch.nn.Module = maker._from_config(  # noqa: SLF001  what `from_config` calls
                deepcopy(config), attn_implementation=name
            )
        except KeyError as fault:
            if fault.args != (name,) or wanted != "sdpa":
                raise
            # its own table of classes has one that calls torch's attention itself (Falcon's)
            model = maker._from_config(config, attn_implementation=wanted)  # noqa: SLF001
    return model


def prepare(config: Any) -> None:
    """Prepare a config for a step: without a cache, and with a first token for a decoder.

    No layer is skipped at random: a step that skips none takes the most memory.
    """
    config.use_cache = False
    if getattr(config, "is_encoder_decoder", False) and getattr(config, _FIRST, None) is None:
        setattr(config, _FIRST, 0)
    _keep_all_layers(config.get_text_config())


def _keep_all_layers(config: Any) -> None:
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if getattr(config, name, None):
            setattr(config, name, 0.0)


def _maker(subject: Subject, transformers: Any) -> Any:
    """The class that the config names, or the one that `Auto...` takes for its kind."""
    named = (subject.config.get("architectures") or [""])[0]
    model = subject.workload.architecture
    if model.kind == "encoder" and not model.head:
        raise Untraceable(
            f"the config of {subject.family!r} names no masked-language head, so there is no "
            "loss to trace"
        )
    if hasattr(transformers, named):
        return getattr(transformers, named)
    auto = getattr(transformers, _AUTO[model.kind])
    config = transformers.CONFIG_MAPPING[subject.config["model_type"]]
    try:
        return auto._model_mapping[config]  # noqa: SLF001  the table behind `from_config`
    except KeyError:
        raise Untraceable(f"transformers has no trainable model for {subject.family!r}") from None


def _diffusers(subject: Subject) -> torch.nn.Module:
    diffusers = importlib.import_module("diffusers")
    options = {key: value for key, value in subject.config.items() if not key.startswith("_")}
    with torch.device("meta"):
        model: torch.nn.Module = getattr(diffusers, subject.config["_class_name"])(**options)
    return model


def _quantize(subject: Subject, model: torch.nn.Module) -> None:
    if subject.workload.quantization.format == "none":
        return
    modules = subject.workload.architecture.modules
    names = [n for m in modules if quantizes(subject.workload, m) for n in m.names()]
    quantize(model, names, subject.workload.quantization)


def _doubled(subject: Subject) -> dict[str, int]:
    workload = subject.workload
    factors = {module: rank_factor(workload.architecture, module) for module in workload.adapted}
    return {
        name: factor * workload.adapter.rank
        for module, factor in factors.items()
        if factor > 1
        for name in module.names()
    }


def _adapt(subject: Subject, model: torch.nn.Module) -> torch.nn.Module:
    import peft

    slots = subject.workload.adapter
    model.requires_grad_(requires_grad=False)
    stacks = [n for m in subject.workload.adapted if is_stack(m) for n in m.names()]
    config = peft.LoraConfig(
        r=slots.rank,
        target_parameters=stacks or None,
        # what transformers' conversion of a checkpoint's separate gate and up asks peft for
        rank_pattern=_doubled(subject),
        lora_alpha=round(slots.alpha) or 1,
        lora_dropout=slots.dropout,
        target_modules=[n for m in subject.workload.adapted if not is_stack(m) for n in m.names()],
        modules_to_save=[n for m in subject.workload.trained for n in m.names()] or None,
        bias=slots.bias,
        use_rslora=slots.rslora,
        use_dora=slots.dora,
    )
    with torch.device("meta"):
        if hasattr(model, "add_adapter") and "_class_name" in subject.config:
            model.add_adapter(config)
        else:
            model = peft.get_peft_model(model, config)
    dtype = DTYPES[subject.layout.states.trainable]
    for name, value in model.named_parameters():
        if value.requires_grad and "lora_" in name:
            value.data = value.data.to(dtype)
    return model


def _freeze(subject: Subject, model: torch.nn.Module) -> torch.nn.Module:
    trained = set(_names(subject))
    model.requires_grad_(requires_grad=False)
    # a tied weight has several names, of which an account has one
    for name, value in model.named_parameters(remove_duplicate=False):
        if name in trained or name.rpartition(".")[0] in trained:
            value.requires_grad_(requires_grad=True)
    return model


def _names(subject: Subject) -> Iterator[str]:
    for module in subject.workload.trained:
        yield from module.names()


def _checkpoint(subject: Subject, model: Any) -> None:
    if needs_segments(subject):
        recompute_in_segments(subject, model)
        if subject.is_adapted and hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()
        return
    if "_class_name" in subject.config:
        model.enable_gradient_checkpointing()
        return
    reentrant = subject.layout.activation_checkpointing.reentrant
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if subject.is_adapted:
        model.enable_input_require_grads()
