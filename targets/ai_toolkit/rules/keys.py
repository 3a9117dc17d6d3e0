"""Keys that no class of ai-toolkit asks for, and what its classes refuse together."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.schemas import parser_releases, parser_schema
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached
from tunec.targets.ai_toolkit.packages import PACKAGE

_KIND: Final = "ai-toolkit"
_LIKE: Final = 0.88
_BLOCKS: Final = ("network", "train", "train.ema_config", "model", "save", "logging")
"""Blocks that one class takes whole; those of samples differ by the model."""


@cached()
def _known() -> Mapping[str, frozenset[str]]:
    """By block, the keys that its class asks for in any release."""
    found: dict[str, frozenset[str]] = {}
    for release in parser_releases(PACKAGE):
        for name, block in parser_schema(PACKAGE, release)["properties"].items():
            found[name] = found.get(name, frozenset()) | frozenset(block.get("properties", ()))
    return found


@rule(
    "key-unread-by-ai-toolkit",
    "error",
    "silent",
    consumers=(_KIND,),
    reads=("ai-toolkit:*",),
)
def key_unread_by_ai_toolkit(run: LintContext) -> Iterator[Finding]:
    """A key of a block that its class takes, and never asks for."""
    for document in run.of(_KIND):
        for path, place in document.found.items():
            block, _, key = path.rpartition(".")
            block = "datasets" if block.startswith("datasets.[") else block
            is_asked = block in (*_BLOCKS, "datasets") and not key.startswith("[")
            if is_asked and key not in _known()[block]:
                yield _unread(block, key, place)


def _unread(block: str, key: str, place: Place) -> Finding:
    known = _known()[block]
    is_meant = nearly(key, known, _LIKE) is not None
    near = nearest(key, known)[:1]
    others = [name for name in (*_BLOCKS, "datasets") if name != block and key in _known()[name]]
    move = f"move it to {others[0]}" if others else "remove it"
    return Finding(
        f"{block} has no key {key}",
        (place.key_label("not read"),),
        ("its class accepts any key, and reads only those that it knows",),
        f"did you mean {near[0]}?" if is_meant else move,
        Fix((place.renamed(near[0]),), "unsafe") if is_meant else None,
        severity=None if is_meant or others else "warning",
    )


_ERROR: Final = "ValueError before the model is loaded"


def _refused(when: str, beside: tuple[str, ...], message: str, help: str, why: str = _ERROR) -> Row:
    return Row(f"{_KIND}:{when}", message, "refused", why, help, beside=beside)


AI_TOOLKIT_CONFIG_REFUSED: Final = rows(
    "ai-toolkit-config-refused",
    "error",
    "init",
    consumers=(_KIND,),
    rows=(
        _refused(
            "save.save_format!=safetensors|diffusers",
            (),
            "save_format {0.value} is neither safetensors nor diffusers",
            "write safetensors",
        ),
        _refused(
            "train.gradient_accumulation>1",
            ("train.gradient_accumulation_steps!=1",),
            "gradient_accumulation is refused beside gradient_accumulation_steps {1.value}",
            "remove gradient_accumulation_steps",
        ),
        *(
            _refused(
                f"model.{flag}=true",
                ("no model.is_flux=true", "no model.arch=flux|flex1"),
                "{0.key} is refused for a model that is not FLUX",
                "remove {0.key}, or write arch: flux",
            )
            for flag in ("split_model_over_gpus", "attn_masking")
        ),
        _refused(
            "train.bypass_guidance_embedding=true",
            ("train.do_guidance_loss=true",),
            "bypass_guidance_embedding is refused beside do_guidance_loss",
            "remove one of the two",
        ),
        _refused(
            "model.accuracy_recovery_adapter",
            ("model.assistant_lora_path",),
            "accuracy_recovery_adapter is refused beside assistant_lora_path",
            "remove one of the two",
        ),
        *(
            _refused(
                f"model.qtype~accuracy_recovery_adapters/{family}",
                (f"no model.arch~{family}",),
                f"the recovery adapter is one of {family}, and model.arch is another",
                "write qtype: qfloat8, or the adapter of this model",
                "no layer has its names: there are not any lora modules in this network",
            )
            for family in ("wan22", "qwen_image")
        ),
        _refused(
            "train.diff_output_preservation=true",
            ("train.blank_prompt_preservation=true",),
            "diff_output_preservation is refused beside blank_prompt_preservation",
            "remove one of the two",
        ),
        _refused(
            "model.arch=qwen_image_edit",
            ("train.unload_text_encoder=true",),
            "unload_text_encoder is refused for {0.value}, which encodes pictures with the text",
            "remove unload_text_encoder",
        ),
        _refused(
            "model",
            ("no model.name_or_path?",),
            "no name_or_path says which model is trained",
            "write name_or_path",
        ),
    ),
)


@rule(
    "rate-replaced-by-ai-toolkit",
    "warning",
    "silent",
    consumers=(_KIND,),
    reads=("ai-toolkit:train.optimizer",),
)
def rate_replaced_by_ai_toolkit(run: LintContext) -> Iterator[Finding]:
    """A rate below 0.1 of an optimizer that finds its own: 1 takes its place."""
    for document in run.of(_KIND):
        optimizer, rate = document.get("train.optimizer"), document.get("train.lr")
        word = str(optimizer.value).lower() if optimizer is not None else ""
        low: Any = rate.value if rate is not None else 0
        is_low = isinstance(low, int | float) and 0 < low < 0.1
        if rate is not None and is_low and word.startswith(("prodigy", "dadaptation")):
            yield Finding(
                f"a learning rate of {low} is not used: {word} takes 1",
                (rate.label("replaced by 1.0"), *also(optimizer, "finds the rate")),
                ("a rate below 0.1 is taken for a mistake, without a message",),
                "write lr: 1.0",
            )


@rule(
    "size-listed-twice-in-ai-toolkit",
    "warning",
    "silent",
    consumers=(_KIND,),
    reads=("ai-toolkit:datasets",),
)
def size_listed_twice_in_ai_toolkit(run: LintContext) -> Iterator[Finding]:
    """Width and height where sizes are listed: the same size twice is the same set twice."""
    for document in run.of(_KIND):
        for path, place in document.found.items():
            sizes = place.value
            is_size = path.startswith("datasets.[") and path.endswith("].resolution")
            if is_size and isinstance(sizes, list) and len(set(map(str, sizes))) < len(sizes):
                yield Finding(
                    f"the set is trained on {len(sizes)} times: its resolution lists sizes",
                    (place.label("no width and height"),),
                    ("each entry is a size of its own, for which the set is taken once more",),
                    f"write resolution: {sizes[0]}",
                    Fix((place.replaced(sizes[0]),), "unsafe"),
                )
