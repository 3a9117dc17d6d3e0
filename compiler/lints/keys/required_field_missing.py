"""A field that a class of this release cannot do without."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.effective import CLASSES
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import schemas


def _check(run: Run) -> Iterator[Finding]:
    every = [each for each in run.of("trainer") if not each.is_view]
    if any(each.unknown & {"flags", "output_dir"} for each in every):
        return
    for document in run.of("hf", *TRL):
        (_, package), *_ = CLASSES.get(document.kind, ()) or (("", ""),)
        if document.is_view or not package or not run.release(package).is_named:
            continue
        around = schemas(run, document)
        needed = set(around[0].get("required", ())) if around else set()
        for name in sorted(needed.intersection(*(each.get("required", ()) for each in around))):
            if all(each.get(name) is None for each in every):
                yield _finding(run, document, name, package)


def _finding(run: Run, document: Document, name: str, package: str) -> Finding:
    is_shell = document.format == "shell"
    return Finding(
        f"{run.release(package)} does without no `{name}`, and none is given",
        (Label("without it", document.start(), "", True),),
        (
            f"error: the following arguments are required: --{name}"
            if is_shell
            else f"TypeError: missing 1 required positional argument: '{name}'",
        ),
        f"write {'--' if is_shell else ''}{name}{' ' if is_shell else ': '}out",
    )


RULE = Rule(
    name="required-field-missing",
    severity="warning",
    consequence="parse",
    consumers=("transformers", "trl"),
    sources=(
        (
            "transformers 4.40.2 to 4.46.3 training_args.py: output_dir: str = "
            "field(metadata=...), without a default; 4.51.3: Optional[str], default=None"
        ),
    ),
    check=_check,
)
