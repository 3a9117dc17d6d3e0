"""FSDP is configured, and not turned on."""

from collections.abc import Iterator

from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if any(True for _ in asked(run)):
        return
    for document in run.of("trainer"):
        config = document.get("fsdp_config")
        if document.is_view or config is None or not config.node.fields:
            continue
        off = document.get("fsdp")
        yield Finding(
            "fsdp_config is not read: fsdp is not set",
            (
                config.key_label("not read"),
                *([off.label("", primary=False)] if off is not None else []),
            ),
            (),
            "write fsdp: full_shard auto_wrap",
        )


RULE = Rule(
    name="fsdp-config-without-fsdp",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py: `fsdp_config` is useful only when "
            "`fsdp` is specified"
        ),
    ),
    check=_check,
)
