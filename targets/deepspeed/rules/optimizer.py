"""Rules about the optimizer section of DeepSpeed's file."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule

_OWN_LOOP: Final = re.compile(
    r"_no_trainer\.py\Z|(\A|/)train_(?!cogvideox)(dreambooth|text_to_image|controlnet|control|"
    r"instruct_pix2pix|t2i_adapter|lcm_distill|custom_diffusion|unconditional)\w*\.py\Z"
)
"""Scripts with their own training loop, which pass an optimizer of torch and a schedule to
`accelerator.prepare`: transformers 4.40.2 to 5.23.0 examples/pytorch and huggingface/diffusers
0.27.2 to 0.40.0 examples. Those of CogVideoX look into DeepSpeed's file first (`get_optimizer`)."""


@rule("error", "init", consumers=("accelerate",), reads=keys("deepspeed", "optimizer", "scheduler"))
def optimizer_made_by_script(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's file has an optimizer or a scheduler, but the script builds its own."""
    for document in launches(run, "accelerate"):
        script = document.get("script")
        if script is None or not _OWN_LOOP.search(script.first_word):
            continue
        for key in ("optimizer", "scheduler"):
            section = run.said("deepspeed", key)
            if section is not None and section.node.fields:
                yield _made_finding(section, key, script)


def _made_finding(section: Place, key: str, script: Place) -> Finding:
    return Finding(
        f"DeepSpeed's file has a section {key}, and {script.first_word} creates its own",
        (section.key_label("refused"), script.label(f"builds its own {key}", primary=False)),
        (f"You cannot specify {_WORDS[key]} in the config file and in the code at the same time",),
        f"remove the section {key}",
    )


_WORDS: Final = {"optimizer": "an optimizer", "scheduler": "a scheduler"}


_SAME: Final = {
    "adamw_torch": ("adamw", "adam"),
    "adamw_torch_fused": ("adamw", "adam"),
    "adamw_hf": ("adamw", "adam"),
    "lion_32bit": ("lion",),
    "sgd": ("sgd",),
    "adagrad": ("adagrad",),
    "rmsprop": ("rmsprop",),
}

_MADE_BY: Final = {
    "llamafactory": ("loraplus_lr_ratio", "use_badam", "use_adam_mini", "use_muon"),
    "axolotl": ("loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale"),
}
"""Settings that a trainer's own `create_optimizer` reads: llamafactory 0.9.5 train/trainer_utils.py
`create_custom_optimizer`, axolotl 0.19.0 core/trainers/mixins/optimizer.py `OptimizerMixin`."""
_COMPARES: Final = "transformers>=4.57,<5"


@rule(
    "error",
    "silent",
    consumers=("transformers",),
    reads=keys("deepspeed", "optimizer", "optimizer.type"),
)
def optimizer_overridden(run: LintContext) -> Iterator[Finding]:
    """An optimizer section in DeepSpeed's file overrides the trainer's optimizer."""
    yield from _named(run)
    section = run.said("deepspeed", "optimizer.type", "optimizer")
    for kind, names in _MADE_BY.items() if section is not None else ():
        asked = next((each for key in names if (each := run.said(kind, key)) and each.value), None)
        if asked is not None and section is not None:
            yield Finding(
                f"{asked.path} does nothing beside DeepSpeed's optimizer",
                (asked.label("not read"), section.label("used", primary=False)),
                ("where the file has an optimizer section, the trainer makes none of its own",),
                "remove the section and add zero_allow_untested_optimizer",
            )


def _named(run: LintContext) -> Iterator[Finding]:
    section = run.said("deepspeed", "optimizer.type", "optimizer")
    asked, older = run.said("trainer", "optim"), run.said("trainer", "adafactor")
    kind = section.value if section is not None and isinstance(section.value, str) else None
    if section is not None and older is not None and older.value is True:
        if run.runs("transformers<5") is not False:
            yield _refused(run, older, section, kind)
        return
    if section is None or asked is None or not isinstance(asked.value, str):
        return
    if asked.value == "adafactor" and run.runs(_COMPARES) is True:
        yield _refused(run, asked, section, kind)
        return
    if kind is not None and kind.lower() in _SAME.get(asked.value, ()):
        return
    yield Finding(
        f"optim {asked.value} is overridden by DeepSpeed's {kind or 'optimizer'}",
        (asked.label("not used"), section.label("used", primary=False)),
        (
            (
                "an optimizer section in DeepSpeed's file always wins, and the states are those "
                "of its type"
            ),
        ),
        "remove the section and add zero_allow_untested_optimizer, or drop optim",
    )


def _refused(run: LintContext, asked: Place, section: Place, kind: str | None) -> Finding:
    return Finding(
        f"{asked.path} {str(asked.value).lower()} clashes with DeepSpeed's {kind or 'optimizer'}",
        (asked.label("refused"), section.label("", primary=False)),
        ("only one optimizer can be configured, and the trainer checks for this one",),
        f"remove the section and add zero_allow_untested_optimizer, or drop {asked.path}",
        severity=None if run.runs("transformers<5") else "warning",
        consequence="init",
    )


Words = frozenset[str]

_OF_TORCH: Final[Words] = frozenset({"lr", "weight_decay", "foreach", "maximize", "differentiable"})
_MOMENTS: Final[Words] = _OF_TORCH | {"betas", "eps", "capturable"}
_TORCH_ADAM: Final[Words] = _MOMENTS | {"amsgrad", "fused"}
_ADAM: Final[Words] = frozenset({"lr", "bias_correction", "betas", "eps", "weight_decay"})
_ONE_BIT: Final[Words] = _ADAM | {"eps_inside_sqrt", "amsgrad", "cuda_aware", "comm_backend_name"}
_OF_LAMB: Final[Words] = frozenset(
    {"max_coeff", "min_coeff", "coeff_beta", "factor_max", "factor_min", "factor_threshold"}
)
_OF_STEPS: Final[Words] = frozenset(
    {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"}
)
_NEVER: Final = "max_grad_norm"
_WITHOUT: Final = "amsgrad"
_POPPED: Final[Words] = frozenset({"torch_adam", "adam_w_mode"})
"""Parameters of Adam that DeepSpeed removes before it passes on the rest."""
_ON_CPU: Final[Mapping[str, tuple[str, Words]]] = {
    "adam": ("DeepSpeedCPUAdam", _ADAM | {_WITHOUT, "fp32_optimizer_states"}),
    "lion": ("DeepSpeedCPULion", frozenset({"lr", "betas", "weight_decay"})),
    "adagrad": ("DeepSpeedCPUAdagrad", frozenset({"lr", "eps", "weight_decay", _WITHOUT})),
}
_ON_DEVICE: Final[Mapping[str, tuple[str, Words]]] = {
    "adam": ("FusedAdam", _ADAM | {_WITHOUT, "set_grad_none"}),
    "lion": ("FusedLion", frozenset({"lr", "betas", "weight_decay", "set_grad_none"})),
    "lamb": ("FusedLamb", _ADAM | {_WITHOUT, "eps_inside_sqrt", "max_coeff", "min_coeff"}),
    "onebitadam": ("OnebitAdam", _ONE_BIT | {"freeze_step"}),
    "onebitlamb": ("OnebitLamb", _ONE_BIT | _OF_LAMB | {"freeze_step"}),
    "zerooneadam": ("ZeroOneAdam", _ONE_BIT | _OF_STEPS),
    "adagrad": (
        "torch.optim.Adagrad",
        _OF_TORCH | {"lr_decay", "initial_accumulator_value", "eps", "fused"},
    ),
}
_STATES: Final = "fp32_optimizer_states"
_PARAMETER_TORCH: Final[Mapping[str, Words]] = {
    "SGD": _OF_TORCH | {"momentum", "dampening", "nesterov", "fused"},
    "Adafactor": _OF_TORCH - {"differentiable"} | {"beta2_decay", "eps", "d"},
    "Adadelta": _OF_TORCH | {"rho", "eps", "capturable"},
    "Adamax": _MOMENTS,
    "NAdam": _MOMENTS | {"momentum_decay", "decoupled_weight_decay"},
    "RAdam": _MOMENTS | {"decoupled_weight_decay"},
    "RMSprop": _OF_TORCH | {"alpha", "eps", "momentum", "centered", "capturable"},
    "ASGD": _OF_TORCH | {"lambd", "alpha", "t0", "capturable"},
}


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:optimizer.params",))
def optimizer_parameter_refused(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's optimizer section has a parameter that the optimizer's class does not accept."""
    for document in run.of("deepspeed"):
        built = _built(run, document)
        for place in _parameters(document) if built is not None else ():
            name, words = built or ("", frozenset())
            fault = _fault(run, place, name, words)
            if fault is not None:
                yield _parameter_finding(place, name, words, *fault)


def _parameters(document: Document) -> Iterator[Place]:
    held = document.get("optimizer.params")
    for key in (held.node.fields or {}) if held is not None else ():
        place = document.get(f"optimizer.params.{key}")
        if place is not None:
            yield place


def _built(run: LintContext, document: Document) -> tuple[str, Words] | None:
    """The class that DeepSpeed builds, and the parameters that it accepts."""
    kind = document.value("optimizer.type")
    if not isinstance(kind, str):
        return None
    if kind in _PARAMETER_TORCH:
        return f"torch.optim.{kind}", _PARAMETER_TORCH[kind]
    name = {"adamw": "adam"}.get(kind.lower(), kind.lower())
    if name == "adam" and document.value("optimizer.params.torch_adam", False):
        return f"torch.optim.{'AdamW' if kind.lower() == 'adamw' else 'Adam'}", _TORCH_ADAM
    device = run.effective("deepspeed", "zero_optimization.offload_optimizer.device")
    return (_ON_CPU if device.value in ("cpu", "nvme") else _ON_DEVICE).get(
        name, _ON_DEVICE.get(name)
    )


def _fault(run: LintContext, place: Place, name: str, words: Words) -> tuple[str, str] | None:
    key = place.path.rpartition(".")[2]
    if key == _NEVER:
        return "DeepSpeed refuses it by name", "write gradient_clipping at the top"
    is_told = "CPU" not in name or run.runs("deepspeed>=0.19") is not False
    if key == _WITHOUT and place.value and "torch" not in name and is_told:
        return f"{name} has no such variant", "remove it, or write torch_adam: true"
    if key in words or ("Adam" in name and key in _POPPED) or key == _STATES:
        return None
    return f"its parameters are {quoted(sorted(words), 'and')}", ""


def _parameter_finding(place: Place, name: str, words: Words, why: str, mend: str) -> Finding:
    key = place.path.rpartition(".")[2]
    near = nearest(key, sorted(words)) if not mend else []
    taken = {_sibling(place, each) for each in near}
    fix = Fix((place.renamed(near[0]),), "unsafe") if len(near) == 1 and True not in taken else None
    return Finding(
        f"{name} takes no {key}" + (f" {place.value}" if key == _WITHOUT else ""),
        (place.key_label("refused"),),
        (why,),
        mend or did_you_mean(near) or "remove it",
        fix,
    )


def _sibling(place: Place, name: str) -> bool:
    """Whether the optimizer already has a parameter with a name."""
    return place.document.get(f"optimizer.params.{name}") is not None


_OWN: Final = frozenset(
    {"adagrad", "adam", "adamw", "lamb", "muadam", "muadamw", "musgd", "lion", "muon"}
    | {"onebitadam", "onebitlamb", "zerooneadam"}
)
_GONE: Final = frozenset({"onebitadam", "onebitlamb", "zerooneadam"})
"""Optimizers of `_OWN` that exist up to 0.18. Names match in any case."""
_TYPE_TORCH: Final = frozenset(
    {"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "LBFGS", "Muon"}
    | {"NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "Optimizer"}
)
_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "fusedadam"), "AdamW"),
    **dict.fromkeys(("deepspeedcpuadam", "cpuadam", "cpu_adam", "fused_adam"), "AdamW"),
    **{name.lower(): name for name in _TYPE_TORCH},
}


def is_of_nobody(run: LintContext, place: Place) -> bool:
    """Whether neither DeepSpeed nor torch has an optimizer of a given name.

    Then nothing after it is reached. SimpleTuner replaces the name by AdamW, which
    `optimizer-replaced-under-deepspeed` reports.
    """
    value = place.value
    if not isinstance(value, str) or value in _TYPE_TORCH or place.document.kind == "simpletuner":
        return False
    is_gone = value.lower() in _GONE and run.runs("deepspeed>=0.19")
    return value.lower() not in _OWN or bool(is_gone)


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:optimizer.type",))
def optimizer_type_unknown(run: LintContext) -> Iterator[Finding]:
    """Neither DeepSpeed nor torch has an optimizer of the given name."""
    for place in run.each("deepspeed", "optimizer.type"):
        value = place.value
        if not is_of_nobody(run, place):
            continue
        meant = _MEANT.get(value.lower())
        yield Finding(
            f"optimizer.type {value} is no optimizer of DeepSpeed or torch.optim",
            (place.label("refused"),),
            (
                "DeepSpeed's own names match in any case, torch's only with exact spelling",
                "its AdamW is fused on the device, and on the CPU where the states are offloaded",
            ),
            f"write {meant}" if meant else "write AdamW, or build the optimizer in the script",
            Fix((place.replaced(meant),), "safe") if meant else None,
        )


_MUON: Final = "deepspeed:optimizer.type~=muon"
_INLINE: Final = "deepspeed>=0.18,<0.19.6"
"""Releases whose Muon depends on ZeRO's optimizers: deepspeed 0.18.9 to 0.19.5
runtime/zero/muon/muon_optimizer.py `MuonWithAuxAdam`. 0.19.6 has `fallback_to_inline`."""

MUON_WITHOUT_ITS_STEP: Final = rows(
    "muon-without-its-step",
    "error",
    "silent",
    consumers=("deepspeed",),
    rows=(
        Row(
            _MUON,
            "Muon is plain SGD without ZeRO",
            "not orthogonal",
            "its steps are made orthogonal by the optimizer of ZeRO stage 1 and up",
            "write zero_optimization.stage: 1 or 2, or use DeepSpeed 0.19.8",
            effective=("deepspeed:zero_optimization.stage=0",),
            since=_INLINE,
        ),
        Row(
            f"{_MUON} & data_types.grad_accum_dtype=fp32 & bf16.enabled=true",
            "Muon is plain SGD beside gradients in fp32",
            "not orthogonal",
            "with bf16, stage 1 and these keys, another optimizer is used, which keeps flat parts",
            "remove data_types.grad_accum_dtype, or use DeepSpeed 0.19.8",
            effective=("deepspeed:zero_optimization.stage=1",),
            since=_INLINE,
        ),
    ),
)
