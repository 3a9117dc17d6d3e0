"""FSDP 2 is to keep on the host what accelerate has just sent to the devices."""

from collections.abc import Iterator

from tunec.compiler.lints.fsdp.asked import asked, is_false, is_true
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.runs("accelerate<1.13") is not True:
        return
    for each in asked(run):
        load, offload = each.get("cpu_ram_efficient_loading"), each.get("offload_params")
        loads = not is_false(load) if each.who == "accelerate" else is_true(load)
        if each.version == 2 and offload is not None and is_true(offload) and loads:
            yield Finding(
                "FSDP 2 offloads parameters that are loaded on rank 0 and sent to the others",
                (
                    offload.label("wants them on the host"),
                    *([load.label("leaves them on the devices", primary=False)] if load else []),
                ),
                (
                    "the first forward pass ends in: FSDP parameters should be materialized on CPU",
                    *(() if load else ("accelerate launch loads so unless it is told not to",)),
                ),
                "write cpu_ram_efficient_loading: false, or use accelerate 1.13",
            )


RULE = Rule(
    name="fsdp-offload-of-sent-weights",
    severity="error",
    consequence="step",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 1.12.0 utils/fsdp_utils.py `fsdp2_load_full_state_dict`; 1.13.0: "
            "cpu_offload, sharded_tensor.to('cpu')"
        ),
        "huggingface/accelerate#3910",
        (
            "torch 2.13.0 distributed/fsdp/_fully_shard/_fsdp_param_group.py "
            "`_validate_cpu_offload_params`"
        ),
    ),
    check=_check,
)
