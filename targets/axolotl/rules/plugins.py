"""Values that Axolotl's plugins refuse, if a file names the plugin."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rows import Row
from tunec.compiler.lints.rule import Finding

PLUGIN_WORDS: Final = (
    *(
        (key, words, "axolotl>=0.18", "kernels")
        for key, words in (
            ("expert_backend", ("scattermoe", "sonicmoe", "eager", "builtin")),
            ("moe_grouped_backend", ("auto", "marlin", "cutlass", "deepgemm")),
            ("dsv4_fp4_grouped_mode", ("nvfp4",)),
            ("dsv4_fp8_nonexpert_mode", ("float8tensor", "bf16")),
            ("nonexpert_quantization", ("none", "bf16", "fp8", "fp8_blockwise", "nf4", "nvfp4")),
        )
    ),
    ("swanlab_mode", ("cloud", "local", "offline", "disabled"), "axolotl>=0.13", "swanlab"),
)
"""Key, its words, the releases that check it, and the words that name its plugin: axolotl 0.19.0
integrations/kernels/args.py and swanlab/args.py."""
PLUGIN_ROWS: Final = (
    *(
        Row(
            f"axolotl:expert_parallel_{name}<1 & (plugins~expert_parallel)",
            "{0.key} {0.value} is below 1",
            "refused",
            help="remove it",
            since=since,
            files_only=True,
        )
        for name, since in (("size", "axolotl>=0.17"), ("token_capacity", "axolotl>=0.18"))
    ),
    Row(
        "axolotl:swanlab_project= & (plugins~swanlab)",
        "swanlab_project is empty",
        "refused",
        help="write the project's name, or remove it",
        since="axolotl>=0.13",
        files_only=True,
    ),
)
"""axolotl 0.19.0 integrations/expert_parallel/args.py and swanlab/args.py."""


def numbers_of_plugins(run: LintContext, document: Document) -> Iterator[Finding]:
    """Numbers that plugins refuse: axolotl 0.19.0 integrations/diffusion and kernels, args.py."""
    plugins = str(document.value("plugins")).lower()
    least, most = (document.get(f"diffusion.{each}_mask_ratio") for each in ("min", "max"))
    if "diffusion" in plugins and least is not None:
        highest = most.value if most is not None else 0.9
        if is_number(least.value) and is_number(highest) and least.value > highest:
            yield from _of_plugin(run, least, "axolotl>=0.13", f"it is above {highest}")
    for key, is_taken, why in _COUNTS if "kernels" in plugins else ():
        at = document.get(key)
        if at is not None and at.value is not None and not is_taken(at.value):
            yield from _of_plugin(run, at, "axolotl>=0.18", why)


def _of_plugin(run: LintContext, at: Place, since: str, why: str) -> Iterator[Finding]:
    if is_checked(run, since):
        yield Finding(
            f"{at.path} cannot be {shown(at.value)}",
            (at.label("refused"),),
            notes(run, why, since),
            "remove it, or write another number",
            severity=severity(run, since),
        )


def _is_count(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and float(value).is_integer() and int(value) > 0
    except (TypeError, ValueError, OverflowError):
        return False


def _is_start(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return 0 < value < 1 if isinstance(value, float) else not is_number(value) or value >= 0


_COUNTS: Final = (
    ("moe_dequant_chunk_size", _is_count, "it is a whole number above 0"),
    (
        "nvfp4_merge_aware_start_step",
        _is_start,
        "it is a step, or a share of all steps between 0 and 1",
    ),
)
"""Key, a test of its value, and a description of accepted values."""
