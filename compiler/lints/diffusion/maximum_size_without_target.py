"""A largest size is set, and nothing says to what larger pictures shrink."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.asked import amount, configs, said
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at = said(document, "maximum_image_size")
        if at is not None and amount(said(document, "target_downsample_size")) is None:
            yield _finding(at)
    for document in run.of("simpletuner-data"):
        for name in document.found:
            at = document.get(f"{name}.maximum_image_size")
            if at is not None and at.value and not document.value(f"{name}.target_downsample_size"):
                yield _finding(at, "init")


def _finding(at: Place, when: Consequence = "parse") -> Finding:
    return Finding(
        "maximum_image_size is written without target_downsample_size",
        (at.label("refused alone"),),
        ("a picture above the limit is scaled down to the target before it is cropped",),
        "write target_downsample_size too",
        consequence=when,
    )


RULE = Rule(
    name="maximum-size-without-target",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: When providing "
            "--maximum_image_size, you must also provide a value for --target_downsample_size; "
            "helpers/data_backend/config/base.py, the same for a data set"
        ),
    ),
    check=_check,
)
