"""An adapter is to be merged into a base that is loaded quantised."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import stored_form
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("axolotl", "llamafactory"):
        is_axolotl = document.kind == "axolotl"
        found = _axolotl(document) if is_axolotl else _llamafactory(run, document)
        if found is None:
            continue
        merged, base, when = found
        yield Finding(
            "an adapter is to be merged into a quantised base",
            (merged.key_label("merges"), base.label("quantised", primary=False)),
            ("packed weights cannot take the adapter's product in",),
            "merge into the base in bf16 or fp16, and quantise the result",
            consequence=when,
        )


Merge = tuple[Place, Place, Consequence]


def _axolotl(document: Document) -> Merge | None:
    merged, adapter = document.get("merge_lora"), document.value("adapter")
    if merged is None or merged.value is not True or adapter != "qlora":
        return None
    for key in ("load_in_8bit", "gptq", "load_in_4bit"):
        base = document.get(key)
        if base is not None and base.value is True:
            return merged, base, "parse"
    return None


def _llamafactory(run: Run, document: Document) -> Merge | None:
    """`llamafactory-cli export` with an adapter, and bits or a base that is stored so."""
    merged, adapter = document.get("export_dir"), document.get("adapter_name_or_path")
    if merged is None or adapter is None or not merged.value or not adapter.value:
        return None
    after = document.get("export_quantization_bit")
    if after is not None and after.value is not None:
        return merged, after, "init"
    base = document.get("quantization_bit")
    if base is not None and base.value is not None:
        return merged, base, "load"
    stored = stored_form(run)
    return None if stored is None else (merged, stored[1], "load")


RULE = Rule(
    name="merge-into-quantised-base",
    severity="error",
    consequence="load",
    consumers=("axolotl", "llamafactory"),
    sources=(
        "axolotl 0.8.1 to 0.19.0 utils/schemas/peft.py `validate_qlora`: Can't merge qlora",
        (
            "llamafactory 0.9.1 to 0.9.5 train/tuner.py `export_model`: Cannot merge adapters to a "
            "quantized model; Please merge adapters before quantizing the model"
        ),
    ),
    check=_check,
)
