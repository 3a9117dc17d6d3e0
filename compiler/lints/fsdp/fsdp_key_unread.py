"""A key in the Trainer's fsdp_config that the Trainer does not read."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.fsdp.asked import Asked, asked, is_true
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EVERY: Final = (
    *("min_num_params", "transformer_layer_cls_to_wrap", "backward_prefetch", "forward_prefetch"),
    *("sync_module_states", "use_orig_params", "limit_all_gathers", "activation_checkpointing"),
    *("cpu_ram_efficient_loading", "xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt"),
    "xla_fsdp_settings",
)
_SINCE_5: Final = (
    *("version", "reshard_after_forward", "auto_wrap_policy", "cpu_offload", "state_dict_type"),
)
"""Some of these are read from a release between 5.0 and 5.15 on."""
_OF_FSDP_2: Final = ("reshard_after_forward", "version")
_MEANT: Final[Mapping[str, tuple[str, str]]] = {
    "offload_params": ("write fsdp: full_shard auto_wrap offload", "write cpu_offload: true"),
    "offload": ("write fsdp: full_shard auto_wrap offload", "write cpu_offload: true"),
    "cpu_offload": ("write fsdp: full_shard auto_wrap offload", "write cpu_offload: true"),
    "sharding_strategy": (
        "write fsdp: full_shard auto_wrap, or shard_grad_op",
        "write reshard_after_forward",
    ),
    "mixed_precision": ("write bf16: true beside fsdp", "write bf16: true beside fsdp"),
    "mixed_precision_policy": ("write bf16: true beside fsdp", "write bf16: true beside fsdp"),
}
"""What is meant, before release 5 and from it on."""
_OF_XLA: Final = ("xla_fsdp_v2", "xla_fsdp_grad_ckpt", "xla_fsdp_settings")


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        if each.who != "trainer":
            continue
        is_old = run.runs("transformers<5") is True
        known = _EVERY if is_old else (*_EVERY, *_SINCE_5)
        for name, at in each.keys.items():
            if "." in name or not at.value or name in _told(each):
                continue
            if name in _OF_XLA and not is_true(each.get("xla")):
                yield _finding(each, at, "it is for xla: true alone", "remove it")
            elif name not in known and not at.path.startswith("fsdp_min"):
                meant = _MEANT.get(name, (None, None))[not is_old]
                near = did_you_mean(nearest(name, known)[:1])
                yield _finding(each, at, _WHY, meant or near or "remove it")


_WHY: Final = "the Trainer looks for its own keys, and passes over the others"


def _told(each: Asked) -> tuple[str, ...]:
    """Keys of which `fsdp-keys-of-another-version` and `fsdp-reshard-refused` speak."""
    return {1: _OF_FSDP_2, 2: ("sharding_strategy", *_OF_FSDP_2)}.get(each.version or 0, ())


def _finding(each: Asked, at: Place, why: str, help: str) -> Finding:
    return Finding(
        f"the Trainer does not read {at.path}",
        (at.key_label("not read"), each.on.label("", primary=False)),
        (why,),
        help,
    )


RULE = Rule(
    name="fsdp-key-unread",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.6.2 training_args.py `__post_init__`, trainer.py "
            "`create_accelerator_and_postprocess`; 5.10.1 to 5.23.0 training_args.py "
            "`_process_fsdp_args`: the keys that are asked for; xla_fsdp_grad_ckpt is useful only "
            "when xla is set to true"
        ),
    ),
    check=_check,
)
