"""A data set's folder is a file."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.sets import lists
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FILES: Final = (".json", ".yaml", ".toml", ".env", ".zip", ".tar", ".parquet", ".csv")


def _check(run: Run) -> Iterator[Finding]:
    for _, sets in lists(run):
        for each in sets:
            at = each.place("instance_data_dir")
            is_local = each.value("type", "local") == "local"
            if at is None or not is_local or not isinstance(at.value, str):
                continue
            if at.value.lower().endswith(_FILES):
                yield Finding(
                    f"instance_data_dir names the file {at.value}",
                    (at.label("a folder of pictures is wanted"),),
                    ("the folder is searched for pictures, and none is found",),
                    "name the folder",
                )


RULE = Rule(
    name="data-folder-is-a-file",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/data_backend/local.py "
            "`LocalDataBackend.list_files`: files below instance_data_dir; factory.py: no images "
            "were discovered"
        ),
    ),
    check=_check,
)
