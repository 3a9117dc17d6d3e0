"""The template is another family's."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.llamafactory.templates import sees, templates_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        at, model = document.get("template"), document.get("model_name_or_path")
        if document.is_view or at is None or model is None or document.value("stage") == "pt":
            continue
        fitting = templates_of(model.value) if isinstance(model.value, str) else ()
        if not fitting or at.value in fitting or not isinstance(at.value, str):
            continue
        note = (
            "this one handles images: others refuse them"
            if sees(fitting[0])
            else "turns end in other tokens than the model was tuned to, also when it is served"
        )
        yield Finding(
            f"template {at.value} for {model.value}",
            (at.label("another family's"), model.label("", primary=False)),
            (f"LLaMA-Factory's own template for this model is {fitting[0]}", note),
            f"write template: {fitting[0]}",
            Fix((at.replaced(fitting[0]),), "unsafe"),
        )


RULE = Rule(
    name="template-of-another-family",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 extras/constants.py `register_model_group`; "
            "data/template.py `get_template_and_fix_tokenizer`; data/mm_plugin.py: This model "
            "does not support image input"
        ),
    ),
    check=_check,
)
