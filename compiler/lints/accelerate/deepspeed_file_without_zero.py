"""The DeepSpeed file that accelerate is given says nothing of ZeRO."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    yield from _inline(run)
    for file in _named(run):
        for each in run.of("deepspeed"):
            if each.is_view or not _is_same(each.name, file.value):
                continue
            if each.get("zero_optimization") is None and not _is_tuned(run, each):
                yield Finding(
                    f"{file.value} has no zero_optimization, which accelerate asks for",
                    (file.label("refused"), *_first(each)),
                    (),
                    'write "zero_optimization": {"stage": 0} or the stage that is meant',
                )


def _inline(run: Run) -> Iterator[Finding]:
    """The same of a mapping where the file's name would stand."""
    for place in run.each("trainer", "deepspeed"):
        if place.node.fields and "zero_optimization" not in place.node.fields:
            yield Finding(
                "deepspeed has no zero_optimization, which accelerate asks for",
                (place.key_label("refused"),),
                (),
                "write zero_optimization: {stage: 0} or the stage that is meant",
            )


def _is_tuned(run: Run, document: Document) -> bool:
    """Whether DeepSpeed's autotuner hands on files of its own, each with a stage.

    deepspeed 0.14.5 to 0.19.8 autotuning/autotuner.py `model_info_profile_run`, `tune`.
    """
    named = (each.get("flags.autotuning") for each in run.of("launch"))
    return document.value("autotuning.enabled") is True or any(each is not None for each in named)


def _named(run: Run) -> Iterator[Place]:
    """The keys that name a file: accelerate's own, and those of a trainer, which hands it on."""
    for kind, key in (
        ("accelerate", "deepspeed_config.deepspeed_config_file"),
        ("trainer", "deepspeed"),
    ):
        yield from (each for each in run.each(kind, key) if isinstance(each.value, str))


def _is_same(name: str, asked: str) -> bool:
    return name.rpartition("/")[2] == asked.rpartition("/")[2]


def _first(document: Document) -> tuple[Label, ...]:
    first = next(iter(document.found.values()), None)
    return (first.key_label("this file", primary=False),) if first is not None else ()


RULE = Rule(
    name="deepspeed-file-without-zero",
    severity="error",
    consequence="init",
    consumers=("accelerate", "transformers"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: "
            "ValueError, Please specify the ZeRO optimization config in the DeepSpeed config"
        ),
        (
            "transformers 4.44.2 to 5.23.0 training_args.py `__post_init__`: "
            "DeepSpeedPlugin(hf_ds_config=self.hf_deepspeed_config)"
        ),
    ),
    check=_check,
)
