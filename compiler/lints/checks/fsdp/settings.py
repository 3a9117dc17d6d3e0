"""Keys of FSDP and their values."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.sharding import (
    TRUTHS,
    FsdpSettings,
    asked,
    fsdp_keys,
    is_true,
    words,
)
from tunec.compiler.lints.rule import Finding, keys, rule


@rule(
    "warning",
    "silent",
    consumers=("transformers", "axolotl"),
    reads=keys("trainer|axolotl", "fsdp_config"),
)
def fsdp_config_without_fsdp(run: LintContext) -> Iterator[Finding]:
    """FSDP is configured but not turned on."""
    yield from _in_axolotl(run)
    if any(True for _ in asked(run)):
        return
    for document in run.of("trainer"):
        config = document.get("fsdp_config")
        if document.is_view or config is None or not config.node.fields or document.hides("fsdp"):
            continue
        off = document.get("fsdp")
        yield Finding(
            "fsdp_config is not read: fsdp is not set",
            (config.key_label("not read"), *also(off)),
            (),
            "write fsdp: full_shard auto_wrap",
            severity="note" if _is_filled_in(config.node) else None,
        )


_FILLED_IN: Final = ("min_num_params", "xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt")
"""What TrainingArguments write into it themselves, so that a record of arguments has it:
transformers 4.40.2 to 5.23.0 training_args.py `_process_fsdp_args`, `__post_init__`."""


def _is_filled_in(node: Node) -> bool:
    fields = node.fields or {}
    return all(key in _FILLED_IN and each.value in (0, False) for key, each in fields.items())


def _in_axolotl(run: LintContext) -> Iterator[Finding]:
    """Report `fsdp_config` without `fsdp` in Axolotl before 0.12; later the block is enough."""
    for document in run.of("axolotl") if run.runs("axolotl<0.12") else ():
        config = document.get("fsdp_config")
        if document.is_view or config is None or document.value("fsdp"):
            continue
        if config.node.fields:
            yield Finding(
                "fsdp_config is not read: fsdp is not set",
                (config.key_label("not read"),),
                ("Axolotl 0.12 and later take it alone",),
                "write fsdp: [full_shard, auto_wrap]",
            )


_EVERY: Final = (
    *("min_num_params", "transformer_layer_cls_to_wrap", "backward_prefetch", "forward_prefetch"),
    *("sync_module_states", "use_orig_params", "limit_all_gathers", "activation_checkpointing"),
    *("cpu_ram_efficient_loading", "xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt"),
    "xla_fsdp_settings",
)
_SINCE_5: Final = (
    *("version", "reshard_after_forward", "auto_wrap_policy", "cpu_offload", "state_dict_type"),
)
"""Keys of which some are only read from a release between 5.0 and 5.15 on."""
_OF_FSDP_2: Final = ("reshard_after_forward", "version")
_MEANT: Final[Mapping[str, tuple[str, str]]] = {
    "offload_params": ("write fsdp: full_shard auto_wrap offload", "write cpu_offload: true"),
    "offload": ("write fsdp: full_shard auto_wrap offload", "write cpu_offload: true"),
    "cpu_offload": ("write fsdp: full_shard auto_wrap offload", "write cpu_offload: true"),
    "sharding_strategy": (
        "write fsdp: full_shard auto_wrap, or shard_grad_op",
        "write reshard_after_forward",
    ),
    "mixed_precision": ("write bf16: true beside fsdp", "write bf16: true beside fsdp"),
    "mixed_precision_policy": ("write bf16: true beside fsdp", "write bf16: true beside fsdp"),
}
"""The help for each key, before release 5 and from 5 on."""
_OF_XLA: Final = ("xla_fsdp_v2", "xla_fsdp_grad_ckpt", "xla_fsdp_settings")


@rule("warning", "silent", consumers=("transformers",), reads=("trainer:fsdp_config",))
def fsdp_key_unread(run: LintContext) -> Iterator[Finding]:
    """The Trainer does not read a key in its fsdp_config."""
    for each in asked(run):
        if each.who != "trainer":
            continue
        is_old = run.runs("transformers<5") is True
        known = _EVERY if is_old else (*_EVERY, *_SINCE_5)
        for name, at in each.keys.items():
            if is_old and name == "version" and str(at.value) == "2" and not _launched(run):
                yield _unread(each, at, _FSDP_1, "use transformers 5, or a file of accelerate's")
            if "." in name or not at.value or name in _reported_elsewhere(each):
                continue
            if name in _OF_XLA and not is_true(each.get("xla")):
                yield _unread(each, at, "it only applies with xla: true", "remove it")
            elif name not in known and not at.path.startswith("fsdp_min"):
                meant = _MEANT.get(name, (None, None))[not is_old]
                near = did_you_mean(nearest(name, known)[:1])
                yield _unread(each, at, _WHY, meant or near or "remove it")


_FSDP_1: Final = "before transformers 5 it starts FSDP 1, whatever stands there"


def _launched(run: LintContext) -> bool:
    """Whether another file may set the version of FSDP, as accelerate's FSDP_VERSION does."""
    return bool([*run.of("accelerate")]) or any(
        each.get("flags.use_fsdp") or each.get("environment.FSDP_VERSION")
        for each in run.of("launch")
    )


_WHY: Final = "the Trainer reads its own keys and ignores the others"


def _reported_elsewhere(each: FsdpSettings) -> tuple[str, ...]:
    """Keys that `fsdp-keys-of-another-version` and `fsdp-reshard-refused` report."""
    return {1: _OF_FSDP_2, 2: ("sharding_strategy", *_OF_FSDP_2)}.get(each.version or 0, ())


def _unread(each: FsdpSettings, at: Place, why: str, help: str) -> Finding:
    return Finding(
        f"the Trainer does not read {at.path}",
        (at.key_label("not read"), each.on.label("", primary=False)),
        (why,),
        help,
    )


_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "sharding_strategy": ("full_shard", "1"),
    "use_orig_params": ("true",),
    "sync_module_states": ("true",),
    "forward_prefetch": ("false",),
    "backward_prefetch": ("no_prefetch", "none"),
    "limit_all_gathers": ("true",),
}
"""Keys of FSDP1, with the values that match what FSDP2 always does."""
_NEWER: Final[Mapping[str, tuple[str, ...]]] = {"reshard_after_forward": ("true", "full_shard")}
"""Keys of FSDP2 that accelerate does not pass on to FSDP1."""


@rule(
    "warning", "silent", consumers=("accelerate", "transformers"), reads=fsdp_keys(*_SAME, *_NEWER)
)
def fsdp_keys_of_another_version(run: LintContext) -> Iterator[Finding]:
    """Keys of the other version of FSDP, which the version in use does not read."""
    for each in asked(run):
        if each.who == "axolotl":
            continue
        table = _SAME if each.version == 2 else _NEWER if _is_old(each) else {}
        said = [
            place
            for key, same in table.items()
            if (place := each.get(key)) and str(place.value).lower() not in same
        ]
        if not said:
            continue
        names = ", ".join(place.path.rpartition(".")[2] for place in said)
        yield Finding(
            f"FSDP{each.version} does not read {names}",
            (
                *(place.label("not read", primary=place is said[0]) for place in said),
                *_version(each),
            ),
            (_HOW[each.version or 2],),
            "write reshard_after_forward: false for the old SHARD_GRAD_OP, and remove the others"
            if each.version == 2
            else "write fsdp_sharding_strategy, or use version 2",
        )


_HOW: Final = {
    1: "accelerate gives FSDP1 its sharding strategy, FULL_SHARD where none is written",
    2: "FSDP2 shards each parameter by itself: reshard_after_forward alone settles the strategy",
}


def _is_old(each: FsdpSettings) -> bool:
    return each.version == 1 and each.who == "accelerate"


def _version(each: FsdpSettings) -> tuple[Label, ...]:
    place = each.get("version") or each.on
    return (place.label("", primary=False),)


_WORDS: Final = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
_NUMBERS: Final = ("1", "2")


@rule(
    "error", "init", consumers=("accelerate", "transformers"), reads=fsdp_keys("backward_prefetch")
)
def fsdp_prefetch_refused(run: LintContext) -> Iterator[Finding]:
    """An unknown value for FSDP's prefetching."""
    for each in asked(run):
        place = each.get("backward_prefetch")
        if each.who != "trainer" or each.version != 1 or place is None:
            continue  # of accelerate's own file and flags `word-of-none` speaks
        word = str(place.value).upper()
        if word in (*_WORDS, *_NUMBERS):
            continue
        yield Finding(
            f"backward_prefetch {place.value} is not a prefetch setting",
            (place.label("refused"),),
            (f"the words are {', '.join(_WORDS)}",),
            "write backward_pre, or leave it out",
        )


_RESHARD_NAMES: Final = (
    *("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"),
    *("1", "2", "3", "4", "5"),
)


@rule(
    "error",
    "init",
    consumers=("accelerate>=1.6", "transformers"),
    reads=fsdp_keys("reshard_after_forward"),
)
def fsdp_reshard_refused(run: LintContext) -> Iterator[Finding]:
    """`reshard_after_forward` has a value of the other version of FSDP."""
    for each in asked(run):
        place = each.get("reshard_after_forward")
        if place is None or each.who == "axolotl":
            continue
        value = str(place.value).lower()
        if each.version == 2 and value not in TRUTHS:
            keeps = value == "shard_grad_op"
            fix = Fix((place.replaced(not keeps),), "safe") if value in _RESHARD_NAMES else None
            yield Finding(
                f"reshard_after_forward {place.value} is refused: FSDP2 takes true or false",
                (place.label("refused"),),
                ("true is the old FULL_SHARD, false the old SHARD_GRAD_OP",),
                f"write {str(not keeps).lower()}",
                fix,
                consequence="parse" if each.who == "trainer" else None,
            )
        elif each.version == 1 and _is_truth(each, value) and run.runs("transformers>=5"):
            yield Finding(
                f"reshard_after_forward {value} is refused: FSDP1 takes a strategy's name",
                (place.label("refused"),),
                (),
                "write full_shard, or version: 2",
                consequence="parse",
            )


def _is_truth(each: FsdpSettings, value: str) -> bool:
    return each.who == "trainer" and value not in _RESHARD_NAMES


_STRATEGY_NAMES: Final = (
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "HYBRID_SHARD_ZERO2",
)
_OPTIONS: Final = (*(name.lower() for name in _STRATEGY_NAMES), "offload", "auto_wrap")
_OF_TWO: Final = ("full_shard", "shard_grad_op", "offload", "auto_wrap")


@rule(
    "error",
    "init",
    consumers=("accelerate", "transformers"),
    reads=("trainer:fsdp", *fsdp_keys("sharding_strategy")),
)
def fsdp_strategy_refused(run: LintContext) -> Iterator[Finding]:
    """A sharding strategy that FSDP does not have."""
    for each in asked(run):
        if each.who == "trainer":
            yield from _options(run, each)
        elif each.who == "accelerate" and each.version == 1:
            yield from _strategy(each)


def _strategy(each: FsdpSettings) -> Iterator[Finding]:
    place = each.get("sharding_strategy")
    if place is None:
        return
    value = str(place.value)
    if value.upper() in _STRATEGY_NAMES or value in (*"12345", "_HYBRID_SHARD_ZERO2"):
        return
    yield Finding(
        f"fsdp_sharding_strategy {value} does not exist",
        (place.label("refused"),),
        (f"the strategies are {', '.join(_STRATEGY_NAMES)}, or 1 to 5 in that order",),
        "write FULL_SHARD, or the intended one",
    )


def _options(run: LintContext, each: FsdpSettings) -> Iterator[Finding]:
    said = words(each.on)
    known = _OF_TWO if each.version == 2 else _OPTIONS
    for word in said:
        if word not in known:
            yield Finding(
                f"fsdp option {word} is refused",
                (each.on.label("refused"),),
                (
                    f"the options are {', '.join(known)}, separated by spaces, in lower case",
                    *(("FSDP2 has no hybrid or unsharded strategy",) if word in _OPTIONS else ()),
                ),
                "write full_shard auto_wrap",
                consequence="parse",
            )
    if run.runs("transformers<=5.6.2") is True and said == ("offload",):
        yield Finding(
            "fsdp offload stands alone, without a way to shard",
            (each.on.label("refused"),),
            (),
            "write full_shard offload",
            consequence="parse",
        )
