"""Settings of an engine that accelerate is not told to start."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEEPSPEED: Final = frozenset(
    {
        *("zero_stage", "offload_optimizer_device", "offload_param_device", "zero3_init_flag"),
        *("offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_save_16bit_model"),
        *("deepspeed_config_file", "deepspeed_hostfile", "deepspeed_multinode_launcher"),
        *("deepspeed_exclusion_filter", "deepspeed_inclusion_filter", "gradient_clipping"),
        *("deepspeed_moe_layer_cls_names", "gradient_accumulation_steps"),
    }
)
"""accelerate 0.30.1 to 1.15.0 commands/launch.py: flags of DeepSpeed that nothing else reads."""
_SWITCHES: Final[Mapping[str, str]] = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}


def _check(run: Run) -> Iterator[Finding]:
    files = run.of("accelerate")
    for document in launches(run, "accelerate"):
        is_unknown = "flags.config_file" in document.unknown
        if is_unknown or (document.get("flags.config_file") is not None and not files):
            continue  # the file may start the engine
        told = {str(each.value("distributed_type")) for each in files}
        for switch, engine in _SWITCHES.items():
            if document.get(f"flags.{switch}") is None and engine not in told:
                yield from _unread(document, switch)


def _unread(document: Document, switch: str) -> Iterator[Finding]:
    flags = tuple(_flags_of(document, switch))
    if flags:
        is_sure = document.get("flags.multi_gpu") is not None  # then no file is asked
        names = ", ".join("--" + each.path.removeprefix("flags.") for each in flags)
        yield Finding(
            f"{names} without --{switch}",
            tuple(each.label("not read", primary=each is flags[0]) for each in flags),
            (
                "the engine is started by its switch, or by distributed_type in a config file",
                *(() if is_sure else ("accelerate's default config file may start it",)),
            ),
            f"add --{switch}",
            severity=None if is_sure else "warning",
        )


def _flags_of(document: Document, switch: str) -> Iterator[Place]:
    for path, place in document.found.items():
        name = path.removeprefix("flags.")
        is_fsdp = name.startswith("fsdp_")
        if path != name and (is_fsdp if switch == "use_fsdp" else name in _DEEPSPEED):
            yield place


RULE = Rule(
    name="engine-flags-unread",
    severity="error",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command`: deepspeed_launcher "
            "only under use_deepspeed; `_validate_launch_command`: distributed_type of a file only "
            "without --multi_gpu; utils/launch.py `prepare_multi_gpu_env`: FSDP_* only under "
            "use_fsdp"
        ),
    ),
    check=_check,
)
