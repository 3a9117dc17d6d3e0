"""FSDP is configured, and not turned on."""

from collections.abc import Iterator

from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    yield from _in_axolotl(run)
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


def _in_axolotl(run: Run) -> Iterator[Finding]:
    """Until 0.11 the list turns it on; from 0.12 the block alone is enough."""
    for document in run.of("axolotl") if run.runs("axolotl<0.12") else ():
        config = document.get("fsdp_config")
        if document.is_view or config is None or document.value("fsdp"):
            continue
        if config.node.fields:
            yield Finding(
                "fsdp_config is not read: fsdp is not set",
                (config.key_label("not read"),),
                ("Axolotl 0.12 and later take it alone",),
                "write fsdp: [full_shard, auto_wrap]",
            )


RULE = Rule(
    name="fsdp-config-without-fsdp",
    severity="warning",
    consequence="silent",
    consumers=("transformers", "axolotl"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py: `fsdp_config` is useful only when "
            "`fsdp` is specified"
        ),
        (
            "axolotl 0.8.1 core/trainer_builder.py, 0.11.0 core/builders/causal.py: if "
            "self.cfg.fsdp; 0.12.0 core/builders/base.py: if self.cfg.fsdp_config or self.cfg.fsdp"
        ),
    ),
    check=_check,
)
