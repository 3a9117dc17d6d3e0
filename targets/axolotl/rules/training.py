"""Rules about settings of an Axolotl file that training does not follow."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Severity
from tunec.compiler.lints.conditions import Need, first_keys, in_words, lacking, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import KERNELS, configs, is_whole
from tunec.compiler.lints.kinds import is_fragment
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Consequence, Finding, rule

_OF_THE_BASE: Final = re.compile(r"\^?(model|transformer|lm_head|gpt_neox|backbone|language_model)")
"""Prefixes of weight names. With an adapter each name begins with `base_model.model.`, and a
pattern must match from there: axolotl 0.13.2 and 0.19.0 utils/freeze.py
`LayerNamePattern.match`."""
_ENDS: Final = ("lm_head", "embed_tokens")


@rule("error", "silent", consumers=("axolotl",), reads=("axolotl:unfrozen_parameters",))
def adapter_frozen_with_the_base(run: LintContext) -> Iterator[Finding]:
    """No pattern in unfrozen_parameters matches a weight of the adapter, so it is frozen."""
    for document in configs(run):
        at, adapter = document.get("unfrozen_parameters"), document.get("adapter")
        if at is None or adapter is None or adapter.value not in ("lora", "qlora"):
            continue
        patterns = at.value if isinstance(at.value, list) else []
        if patterns and all(_OF_THE_BASE.match(str(each)) for each in patterns):
            yield Finding(
                f"unfrozen_parameters freezes the adapter {adapter.value} too",
                (at.label("fits no weight"), adapter.label("", primary=False)),
                (
                    "beside an adapter names begin with base_model.model: nothing is left to train",
                    "a warning says: All parameters are frozen. Model will not be trained",
                ),
                "remove it, or write lora_modules_to_save",
                consequence=_goes_on(document, patterns),
            )


@rule("error", "step", consumers=("axolotl",), reads=("axolotl:unfrozen_parameters",))
def unfrozen_pattern_escaped(run: LintContext) -> Iterator[Finding]:
    """Patterns of unfrozen_parameters whose dots are escaped, which Axolotl escapes once more."""
    for document in configs(run):
        at, adapter = document.get("unfrozen_parameters"), document.get("adapter")
        patterns = at.value if at is not None and isinstance(at.value, list) else []
        escaped = [str(each) for each in patterns if "\\." in str(each)]
        if at is None or not escaped or (adapter is not None and adapter.value):
            continue
        is_all = len(escaped) == len(patterns)
        yield Finding(
            "unfrozen_parameters names no weight, so nothing is trained"
            if is_all
            else f"{escaped[0]} in unfrozen_parameters names no weight",
            (at.label("matches no name"),),
            (
                "Axolotl escapes each dot itself: yours ask for a backslash in the name",
                *(() if is_all else ("the weights that it means stay frozen",)),
            ),
            f"write {escaped[0].replace(chr(92) + '.', '.').replace('..*', '.*')}",
            severity=None if is_all else "warning",
            consequence=None if is_all else "silent",
        )


def _goes_on(document: Document, patterns: list[Any]) -> Consequence:
    """The consequence: the first step fails, unless inputs get a gradient or an end is trained."""
    is_end = any(end in str(each) for each in patterns for end in _ENDS)
    return "silent" if is_end or document.value("gradient_checkpointing") else "step"


_USUAL: Final = {"lora_r": 16, "lora_alpha": 32}
_NUMBERS: Final = ("lora_r", "lora_alpha")
_TARGETS: Final = ("lora_target_modules", "lora_target_linear", "lora_target_parameters")


@rule("error", "init", consumers=("axolotl",), reads=("axolotl:adapter",))
def adapter_without_numbers(run: LintContext) -> Iterator[Finding]:
    """An adapter's rank or alpha is missing."""
    for document in run.of("axolotl"):
        at = document.get("adapter")
        if document.is_view or at is None or at.value not in ("lora", "qlora"):
            continue
        if document.value("lora_model_dir"):
            continue  # the adapter that is loaded brings its own
        is_left_out = is_fragment(document) and not any(map(document.get, _NUMBERS + _TARGETS))
        severity: Severity | None = "warning" if is_left_out else None
        lost = [key for key in _NUMBERS if document.value(key) is None]
        lost = [key for key in lost if key not in document.unknown]
        if lost:
            yield Finding(
                f"adapter {at.value} needs {' and '.join(lost)}",
                (at.label("incomplete"),),
                ("Axolotl passes None on for it, and PEFT divides lora_alpha by lora_r",),
                "write " + ", ".join(f"{key}: {_USUAL[key]}" for key in lost),
                severity=severity,
            )
        if not any(map(document.value, _TARGETS)):
            yield Finding(
                f"adapter {at.value} needs the names of its layers",
                (at.label("adapts nothing"),),
                ("an empty list of targets is passed on, which PEFT refuses",),
                "write lora_target_linear: true",
                severity=severity,
            )


_INTERVALS: Final = (("save_steps", "saves_per_epoch"), ("eval_steps", "evals_per_epoch"))


@rule("warning", "silent", consumers=("axolotl",), reads=("axolotl:load_best_model_at_end",))
def best_model_not_loaded(run: LintContext) -> Iterator[Finding]:
    """The best model is to be loaded, but Axolotl turns that off because an interval is missing."""
    for document in configs(run):
        at = document.get("load_best_model_at_end")
        lacks = _lacking(document) if at is not None and at.value is True else None
        if at is None or lacks is None or document.get("rl") is not None:
            continue
        other = document.get("save_strategy") or document.get("eval_strategy")
        yield Finding(
            f"load_best_model_at_end is turned off without {lacks}",
            (at.label("becomes False"), *also(other)),
            ("Axolotl passes it on only where both intervals are set and there is data to judge",),
            f"write {lacks}",
        )


def _lacking(document: Document) -> str | None:
    """The missing interval in steps, or the missing evaluation data."""
    for keys in _INTERVALS:
        if not any(document.value(key) or key in document.unknown for key in keys):
            return " or ".join(keys)
    has_split = document.value("val_set_size", 0) or "val_set_size" in document.unknown
    return None if has_split or document.value("test_datasets") else "val_set_size or test_datasets"


_UNTIL: Final = "axolotl<0.16"


@rule("warning", "silent", consumers=("axolotl",), reads=("axolotl:lora_dropout",))
def kernels_passed_over(run: LintContext) -> Iterator[Finding]:
    """Axolotl does not install LoRA kernels if the adapter has dropout."""
    if not run.runs(_UNTIL):
        return
    for document in configs(run):
        kernels = [at for key in KERNELS if (at := where(document, key)) is not None]
        dropout = where(document, "lora_dropout>0")
        if kernels and dropout is not None:
            yield Finding(
                f"the kernels of LoRA are not used with lora_dropout {dropout.value}",
                (
                    dropout.label("keeps them out"),
                    *(each.label("passed over", primary=False) for each in kernels),
                ),
                ("Cannot patch layers - requires no dropout and no bias",),
                "write lora_dropout: 0, or use Axolotl 0.16 and later",
            )


_SIMPO: Final = ("rl=simpo",)
_KTO: Final = ("rl=kto",)
_DPO: Final = ("rl=dpo", "rl=ipo")
_GROUPED: Final = ("rl=grpo", "rl=gdpo", "rl=ebft")
_NEEDS: Final = (
    Need("simpo_gamma", _SIMPO, "it is the margin of SimPO"),
    Need("cpo_alpha", _SIMPO, "it weighs the likelihood in CPO's trainer, which also runs SimPO"),
    Need("kto_desirable_weight", _KTO, "it is a weight of KTO"),
    Need("kto_undesirable_weight", _KTO, "it is a weight of KTO"),
    Need("dpo_use_weighting", _DPO, "only DPO reads it"),
    Need("dpo_padding_free", _DPO, "only DPO reads it"),
    Need("dpo_use_logits_to_keep", _DPO, "only DPO reads it"),
    Need("dpo_label_smoothing", ("rl=dpo",), "only DPO reads it", "axolotl>=0.13"),
    Need("precompute_ref_log_probs", _DPO, "only DPO's trainer gets it", "axolotl>=0.13"),
    Need("max_prompt_len", ("rl=orpo", "rl=kto"), "only these get it", "axolotl<0.13"),
    Need("trl.num_generations", _GROUPED, "it is of methods that compare answers to one prompt"),
    Need("trl.reward_funcs", _GROUPED, "it is of methods that compare answers to one prompt"),
    Need("rl_beta", ("rl",), "there is no preference method"),
    Need("orpo_alpha", ("rl",), "there is no preference method"),
)
_IN_SPAN: Final = "axolotl<0.13"


@rule("warning", "silent", consumers=("axolotl",), reads=first_keys("axolotl", _NEEDS))
def number_of_another_method(run: LintContext) -> Iterator[Finding]:
    """A number of one preference method is set in a file that trains by another method or none."""
    for document in configs(run):
        for need in _NEEDS:
            is_old = need.since == _IN_SPAN and not run.runs(_IN_SPAN)
            found = None if is_old else lacking(run, document, need)
            if found is None:
                continue
            at, beside = found
            yield Finding(
                f"{at.path} is not read without {in_words(need.others[0])}",
                (at.label("not read"), *also(beside)),
                (need.why,),
                f"write {in_words(need.others[0])}, or remove it",
            )


_PLUGINS: Final = {
    "liger_": ("liger", "axolotl.integrations.liger.LigerPlugin"),
    "cut_cross_entropy": (
        "cut_cross_entropy",
        "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
    ),
    "spectrum_": ("spectrum", "axolotl.integrations.spectrum.SpectrumPlugin"),
    "kd_": ("kd", "axolotl.integrations.kd.KDPlugin"),
}
"""Prefix of an option, the words in `plugins` that name its plugin, and the plugin's full name."""


@rule("warning", "silent", consumers=("axolotl",), reads=("axolotl:*",))
def option_without_its_plugin(run: LintContext) -> Iterator[Finding]:
    """An option belongs to one of Axolotl's plugins that `plugins` does not name."""
    for document in configs(run):
        named = document.get("plugins")
        if "plugins" in document.unknown:
            continue
        text = str(named.value).lower() if named is not None else ""
        for start, (word, plugin) in _PLUGINS.items():
            said = list(_set_below(document, start))
            if said and word.replace("_", "") not in text.replace("_", ""):
                yield _without_plugin(document, said, named, plugin)


def _set_below(document: Document, start: str) -> Iterator[Place]:
    return (
        place
        for path, place in document.found.items()
        if path.startswith(start) and "." not in path and place.value not in (None, False)
    )


def _without_plugin(
    document: Document, said: list[Place], named: Place | None, plugin: str
) -> Finding:
    added = document.added("plugins", [plugin]) if named is None else None
    return Finding(
        f"{said[0].path} does nothing without the plugin {plugin}",
        (*(each.label("not read", primary=at == 0) for at, each in enumerate(said)), *also(named)),
        ("the option is the plugin's own, and only those that `plugins` names are started",),
        f"write plugins: [{plugin}]",
        Fix((added,), "unsafe") if added is not None else None,
    )


@rule("warning", "silent", consumers=("axolotl",), reads=("axolotl:fix_untrained_tokens",))
def token_mended_and_frozen(run: LintContext) -> Iterator[Finding]:
    """A token's embedding is fixed at the start, but is not among those that are trained."""
    for document in configs(run):
        mended = document.get("fix_untrained_tokens")
        trained = document.get("peft_trainable_token_indices")
        if mended is None or trained is None or not trained.value:
            continue
        lost = sorted(_numbers(mended.value) - _numbers(trained.value))
        if lost:
            yield Finding(
                f"token {lost[0]} gets a new embedding, which is not trained",
                (mended.label("replaced once"), trained.label("not among them", primary=False)),
                (
                    "its embedding is set to the mean of the others, and stays at that",
                    f"{len(lost)} of {len(_numbers(mended.value))} new embeddings are not trained",
                ),
                f"add {', '.join(map(str, lost))} to peft_trainable_token_indices",
            )


def _numbers(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {each for part in value.values() for each in _numbers(part)}
    given = value if isinstance(value, list) else [value]
    return {each for each in given if is_whole(each)}


PACKED_SAMPLES_IN_A_RING: Final = rows(
    "packed-samples-in-a-ring",
    "error",
    "silent",
    consumers=("axolotl",),
    rows=(
        Row(
            "axolotl:ring_attn_func=batch_ring & sample_packing=true & context_parallel_size>1",
            "samples of one sequence attend to each other under batch_ring",
            "ignores the ends of samples",
            "queries attend to earlier samples, and the loss is higher",
            "remove ring_attn_func: varlen_llama3 is taken for packed samples",
        ),
    ),
)

_TURNS_END: Final = {
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "gemma3n": "<end_of_turn>",
}
_BASES: Final[tuple[tuple[str, Severity | None], ...]] = (
    ("no base_model~-it", None),
    ("(base_model~-it)", "note"),
)
"""A model that follows instructions ends its turns already."""
_ENDS_OF_TURNS: Final = tuple(
    Row(
        f"axolotl:chat_template={template}",
        f"Gemma ends its turns in {end}, and nothing trains it to",
        f"ends turns in {end}",
        "the loss covers the tokenizer's end of text, which this template does not write: answers "
        "of the trained model may not stop",
        f"write eot_tokens: [{end}]",
        beside=(
            *("no eot_tokens", "no special_tokens.eos_token", "no rl", "no base_model~unsloth"),
            *("no reward_model=true", "no process_reward_model=true"),
            *("datasets~chat_template", model),
        ),
        severity=level,
    )
    for template, end in _TURNS_END.items()
    for model, level in _BASES
)
TURN_END_UNTRAINED: Final = rows(
    "turn-end-untrained", "warning", "silent", consumers=("axolotl",), rows=_ENDS_OF_TURNS
)
"""axolotl 0.8.1 to 0.19.0 prompt_strategies/chat_template.py: "Default to eos_token if eot_tokens
not provided"."""
