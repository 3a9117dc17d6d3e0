"""DeepSpeed and FSDP are both asked for."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer", "axolotl"):
        if document.is_view:
            continue
        engine = document.get("deepspeed")
        shards = document.get("fsdp") or document.get("fsdp_config")
        if engine is None or shards is None or not engine.value or not shards.value:
            continue
        yield Finding(
            "deepspeed and fsdp are both set",
            (engine.label(""), shards.key_label("", primary=False)),
            ("Axolotl refuses it as it reads the file, the trainer when it is set up",),
            "keep one",
            consequence="parse" if document.kind == "axolotl" else "init",
        )


RULE = Rule(
    name="deepspeed-and-fsdp",
    severity="error",
    consequence="parse",
    consumers=("axolotl", "transformers"),
    sources=(
        (
            "axolotl utils/schemas/validation.py `check_fsdp_deepspeed`: deepspeed and fsdp cannot "
            "be used together; axolotl-ai-cloud/axolotl#1388"
        ),
        (
            "transformers 4.40.2 to 5.23.0 training_args.py: the pair is accepted; trainer.py "
            "`__init__`: ValueError, Using --fsdp xxx together with --deepspeed is not possible"
        ),
    ),
    check=_check,
)
