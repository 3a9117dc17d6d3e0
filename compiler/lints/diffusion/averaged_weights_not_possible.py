"""Averaged weights (EMA) are asked for in a way that SimpleTuner refuses."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.asked import amount, configs, is_on, said
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        yield from _on_cpu(document)
        yield from _without_source(document)


def _on_cpu(document: Document) -> Iterator[Finding]:
    average, cpu, shards = (said(document, k) for k in ("use_ema", "ema_cpu_only", "fsdp_enable"))
    version = said(document, "fsdp_version")
    if cpu is None or shards is None or not all(is_on(each) for each in (average, cpu, shards)):
        return
    if version is not None and amount(version) != 2:
        return
    yield Finding(
        "averaged weights of FSDP2 cannot be kept on the CPU: ema_cpu_only",
        (cpu.label("refused"), (version or shards).label("", primary=False)),
        ("they are sharded like the parameters, and stay on the devices",),
        "remove ema_cpu_only, and write ema_device: accelerator",
    )


def _without_source(document: Document) -> Iterator[Finding]:
    start = said(document, "init_lora_ema")
    if start is None:
        return
    for flag, is_there in (
        ("init_lora", said(document, "init_lora") is not None),
        ("use_ema", is_on(said(document, "use_ema"))),
    ):
        if not is_there:
            yield _lone(start, flag)
            return


def _lone(start: Place, flag: str) -> Finding:
    return Finding(
        f"init_lora_ema without {flag}",
        (start.label("refused alone"),),
        ("it is the average that belongs to the adapter of init_lora",),
        f"write {flag} too, or remove init_lora_ema",
    )


RULE = Rule(
    name="averaged-weights-not-possible",
    severity="error",
    consequence="init",
    consumers=("simpletuner>=4.10",),
    sources=(
        (
            "simpletuner 4.10.1 helpers/training/trainer.py `init_ema_model`: RuntimeError, "
            "ema_cpu_only is not supported with FSDP2; `_load_initial_lora_ema_state`: ValueError, "
            "init_lora_ema requires init_lora, use_ema=true; neither is in 3.1.6"
        ),
        "simpletuner 4.10.1 helpers/configuration/cmd_args.py: fsdp_version is 2 unless written",
    ),
    check=_check,
)
