"""KTO in Axolotl without remove_unused_columns: false."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("axolotl"):
        at, columns = document.get("rl"), document.get("remove_unused_columns")
        if document.is_view or at is None or at.value != "kto":
            continue
        if columns is not None and columns.value is False:
            continue
        edit = None
        if columns is None:
            edit = document.added("remove_unused_columns", value=False)
        else:
            edit = columns.replaced(value=False)
        yield Finding(
            "rl kto needs remove_unused_columns: false",
            (columns.label("refused") if columns is not None else at.label("refused alone"),),
            ("KTO's own columns are none of the model's arguments",),
            "write remove_unused_columns: false",
            Fix((edit,), "safe") if edit is not None else None,
        )


RULE = Rule(
    name="kto-needs-every-column",
    severity="error",
    consequence="parse",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 utils/schemas `check_kto_config`: Set "
            "`remove_unused_columns: False` when using kto"
        ),
    ),
    check=_check,
)
