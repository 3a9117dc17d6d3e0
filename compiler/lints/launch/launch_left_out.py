"""accelerate is given its launcher's flags, and not told to launch."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Edit, Fix
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "accelerate"):
        at = document.get("launcher")
        if at is None or at.node.written != "accelerate":
            continue
        span = at.span
        behind = document.text.split("\n")[span.line - 1][span.end_column - 1 :]
        if behind.lstrip().startswith("--"):
            yield Finding(
                "accelerate has no such flags: its launcher is `accelerate launch`",
                (at.label("no command"),),
                ("accelerate <command> [<args>]: error: unrecognized arguments",),
                "write accelerate launch",
                Fix((Edit(span, "accelerate launch"),), "unsafe"),
            )


RULE = Rule(
    name="launch-left-out",
    severity="error",
    consequence="parse",
    consumers=("accelerate",),
    sources=("accelerate 0.30.1 to 1.15.0 commands/accelerate_cli.py `main`: sub-commands",),
    check=_check,
)
