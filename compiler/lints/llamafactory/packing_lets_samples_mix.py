"""Samples are packed without keeping them apart."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        at, neat = document.get("packing"), document.get("neat_packing")
        is_sft = document.value("stage", "sft") == "sft"
        if document.is_view or at is None or at.value is not True or not is_sft:
            continue
        if neat is not None and neat.value is True:
            continue
        yield Finding(
            "packing without neat_packing: samples of one sequence see each other",
            (at.label("several samples in one"),),
            ("plain packing is meant for pre-training; neat_packing masks them from each other",),
            "write neat_packing: true",
            Fix((at.renamed("neat_packing"),), "unsafe") if neat is None else None,
        )


RULE = Rule(
    name="packing-lets-samples-mix",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 data/processor/supervised.py "
            "`PackedSupervisedDatasetProcessor`: attention masks count samples only with "
            "neat_packing; hparams/parser.py: block_diag_attn = neat_packing"
        ),
    ),
    check=_check,
)
