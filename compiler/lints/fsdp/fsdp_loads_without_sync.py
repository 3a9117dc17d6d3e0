"""Only rank 0 loads weights, and they are not to be passed on."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import asked, is_false, is_true
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        sync, load = each.get("sync_module_states"), each.get("cpu_ram_efficient_loading")
        if sync is None or each.who == "axolotl" or not is_false(sync):
            continue
        if each.who == "accelerate" and (sync.value is not False or is_false(load)):
            continue
        if each.who == "trainer" and not (is_true(load) and _is_refused(run)):
            continue
        yield Finding(
            "cpu_ram_efficient_loading without sync_module_states: only rank 0 has weights",
            (
                sync.label("the other ranks stay empty"),
                *([load.label("", primary=False)] if load else []),
            ),
            () if load else ("accelerate launch loads on rank 0 only unless it is told not to",),
            "write sync_module_states: true",
            Fix((sync.replaced(True),), "safe"),
            consequence="parse" if each.who == "trainer" else None,
        )


def _is_refused(run: Run) -> bool:
    return run.runs("transformers>=4.44") is True and run.runs("transformers<=5.6.2") is True


RULE = Rule(
    name="fsdp-loads-without-sync",
    severity="error",
    consequence="init",
    consumers=(
        "accelerate",
        "transformers",
    ),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`: ValueError, When "
            "using `--fsdp_cpu_ram_efficient_loading` set `--fsdp_sync_module_states` to `True`; "
            "commands/launch.py: both default to true"
        ),
        (
            "transformers 4.44.2 to 5.6.2 training_args.py: ValueError, `sync_module_states` must "
            'be "True" if `cpu_ram_efficient_loading` is "True"; 5.15.1: it is turned on instead'
        ),
    ),
    check=_check,
)
