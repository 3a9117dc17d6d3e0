"""A name is written as a string, which PEFT takes for a regular expression over whole names."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import ALL_LINEAR, Lora, adapters, is_plain
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        at = lora.place("target_modules")
        if at is None or lora.document.kind == "llamafactory":
            continue
        if isinstance(lora.targets, str) and lora.targets.lower() != ALL_LINEAR:
            yield from _as_text(lora, at, lora.targets)
        elif _is_one_of_trl(run, lora):
            yield _one(at, (lora.targets or "")[0])


def _as_text(lora: Lora, at: Place, text: str) -> Iterator[Finding]:
    if not is_plain(text) or "." in text:
        return
    names = [part.strip() for part in text.split(",") if part.strip()]
    flags = lora.document.format == "shell" or lora.document.kind in TRL
    yield Finding(
        f"target_modules is the text {text}, which matches no module",
        (at.label("a regular expression over the whole name"),),
        ("model.layers.0.self_attn.q_proj is not matched by q_proj: only a list matches ends",),
        f"write a list: [{', '.join(names)}]",
        None if flags else Fix((at.replaced(names),), "safe"),
    )


def _is_one_of_trl(run: Run, lora: Lora) -> bool:
    names = lora.targets
    is_trl = lora.document.kind in TRL and run.runs("trl>=0.10") is not False
    return is_trl and isinstance(names, tuple) and len(names) == 1 and is_plain(names[0])


def _one(at: Place, name: str) -> Finding:
    return Finding(
        f"a list of one target, {name}, becomes a regular expression that matches no module",
        (at.label("unpacked to a string"),),
        (
            "TRL replaces a list of one by its item, and PEFT matches a string with whole names",
            "so written since trl 0.9 or 0.10; 0.8.6 does it to all-linear only",
        ),
        f"write the expression itself: .*\\.{name}",
        Fix((at.replaced([f".*\\.{name}"]),), "safe"),
    )


RULE = Rule(
    name="lora-target-string-is-a-regex",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `check_target_module_exists`, "
            "`match_target_against_key`: re.fullmatch for a string"
        ),
        (
            "trl 0.10.1 to 1.16.0 trainer/model_config.py `ModelConfig.__post_init__`: "
            "lora_target_modules[0] for a list of one; not in 0.8.6"
        ),
    ),
    check=_check,
)
