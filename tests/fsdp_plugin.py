"""Plans that run on FSDP, and what accelerate's plugin must hold for them."""

from collections.abc import Mapping
from typing import Any

from tests.plans import FSDP_1, FSDP_2, plan_of

from tunec.compiler.ir.plan import Plan

FSDP: Mapping[str, Plan] = {
    "fsdp 1": plan_of(FSDP_1),
    "fsdp 1, sharded gradients": plan_of(
        FSDP_1,
        {
            "fsdp.sharding": "grad_op",
            "fsdp.offload_params": True,
            "fsdp.wrap_classes": ("LlamaDecoderLayer", "LlamaRMSNorm"),
            "fsdp.backward_prefetch": "post",
            "fsdp.forward_prefetch": True,
            "fsdp.use_orig_params": False,
            "fsdp.state_dict": "sharded",
            "fsdp.checkpointing": False,
        },
    ),
    "fsdp 1 by size": plan_of(
        FSDP_1,
        {
            "fsdp.sharding": "hybrid",
            "fsdp.wrap": "size",
            "fsdp.min_parameters": 123_456,
            "fsdp.backward_prefetch": "none",
            "fsdp.efficient_loading": False,
        },
    ),
    "fsdp 2": plan_of(FSDP_2),
    "fsdp 2, parameters kept": plan_of(
        FSDP_2,
        {
            "fsdp.sharding": "grad_op",
            "fsdp.state_dict": "sharded",
            "fsdp.offload_params": True,
            "fsdp.wrap_classes": ("LlamaDecoderLayer",),
            "fsdp.efficient_loading": False,
            "fsdp.checkpointing": False,
        },
    ),
}
SHARDING = {"full": "FULL_SHARD", "grad_op": "SHARD_GRAD_OP", "hybrid": "HYBRID_SHARD"}
PREFETCH = {"pre": "BACKWARD_PRE", "post": "BACKWARD_POST"}


def check_plugin(plan: Plan, held: Mapping[str, Any]) -> None:
    """The real FullyShardedDataParallelPlugin holds what the plan says."""
    fsdp, first = plan.fsdp, plan.fsdp.version == 1
    wrap = {"transformer": "transformer_auto_wrap_policy", "size": "size_based_auto_wrap_policy"}
    classes = held.get("transformer_cls_names_to_wrap")
    assert held.get("fsdp_version", 1) == fsdp.version
    if first:
        assert held["sharding_strategy"] == SHARDING[fsdp.sharding]
        assert held["cpu_offload"]["offload_params"] is fsdp.offload_params
        assert held["backward_prefetch"] == PREFETCH.get(fsdp.backward_prefetch)
        assert held["forward_prefetch"] is fsdp.forward_prefetch
        assert held["use_orig_params"] is fsdp.use_orig_params
        assert held["sync_module_states"] is True
    else:
        assert held["reshard_after_forward"] is (fsdp.sharding == "full")
        assert bool(held["cpu_offload"]) is fsdp.offload_params
    if "min_num_params" in held:
        assert held["auto_wrap_policy"] == wrap.get(fsdp.wrap)
    else:
        word = held["environment"]["FSDP_AUTO_WRAP_POLICY"]
        assert word == f"{fsdp.wrap}_BASED_WRAP".upper()
    assert tuple(classes or fsdp.wrap_classes) == fsdp.wrap_classes
    if fsdp.wrap == "size" and "min_num_params" in held:
        assert held["min_num_params"] == fsdp.min_parameters
    assert held["state_dict_type"] == f"{fsdp.state_dict}_STATE_DICT".upper()
    if "cpu_ram_efficient_loading" in held:
        assert held["cpu_ram_efficient_loading"] is fsdp.efficient_loading
    assert held["activation_checkpointing"] is fsdp.checkpointing
