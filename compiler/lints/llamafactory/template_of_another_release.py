"""A template that the release of LLaMA-Factory does not have."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.llamafactory.template_names import since, template_names
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        at = document.get("template")
        if document.is_view or at is None or not isinstance(at.value, str):
            continue
        release = run.release("llamafactory")
        names = template_names(str(release.version))
        is_early = run.runs("llamafactory<0.8.3")
        # a later release may have brought what is like no name that is known
        is_slip = since(at.value) is None and bool(nearest(at.value, names))
        if at.value not in names and not is_early and (release.is_named or is_slip):
            yield _finding(run, at, at.value, names)


def _finding(run: Run, at: Place, name: str, names: frozenset[str]) -> Finding:
    brought = since(name)
    near = nearest(name, names)[:1] if brought is None else ()
    notes = (f"LLaMA-Factory {brought} brought it",) if brought else ()
    own = ("unless it is registered by code of your own",) if brought is None else ()
    return Finding(
        f"{run.release('llamafactory')} has no template `{name}`",
        (at.label("does not exist"),),
        (*notes, *own),
        did_you_mean(near) or "use a template that the release has",
        Fix((at.replaced(near[0]),), "unsafe") if near else None,
        severity="warning" if brought is None else None,
    )


RULE = Rule(
    name="template-of-another-release",
    severity="error",
    consequence="load",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.8.3 to 0.9.5 data/template.py `get_template_and_fix_tokenizer`: "
            "Template ... does not exist; `register_template`"
        ),
    ),
    check=_check,
)
