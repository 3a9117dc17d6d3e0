"""The deepspeed launcher is given devices both by name and by number."""

from collections.abc import Iterator

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FILTERS = ("flags.include", "flags.i", "flags.exclude", "flags.e")
_COUNTS = ("flags.num_gpus", "flags.num_accelerators", "flags.num_nodes")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "deepspeed"):
        chosen = [p for key in _FILTERS if (p := document.get(key)) is not None]
        counted = [p for key in _COUNTS if (p := document.get(key)) is not None]
        words = {each.path.rpartition(".")[2][0] for each in chosen}
        if chosen and counted:
            other, why = counted[0], "Cannot specify num_nodes/gpus with include/exclude"
        elif words == {"i", "e"}:
            other, why = chosen[1], "include_str and exclude_str are mutually exclusive"
        else:
            continue
        yield Finding(
            f"--{chosen[0].path.rpartition('.')[2]} with --{other.path.rpartition('.')[2]}",
            (other.key_label("refused"), chosen[0].key_label("", primary=False)),
            (f"the launcher: {why}",),
            "keep one",
        )


RULE = Rule(
    name="include-with-count",
    severity="error",
    consequence="parse",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`, `parse_resource_filter`: ValueError",
    ),
    check=_check,
)
