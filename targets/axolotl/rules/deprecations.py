"""Rules about keys that Axolotl still accepts with a warning."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.conditions import key_of, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, keys, rule


class Old(Struct, frozen=True):
    """A condition about which a release warns, and the replacement that it recommends."""

    when: str
    help: str
    since: str = "axolotl>=0.11"
    renamed: str = ""
    """The new name, if the value stays the same."""


def _renamed(old: str, new: str, since: str = "axolotl>=0.11") -> Old:
    return Old(old, f"write {new}", since, new)


_NOW: Final = "axolotl>=0.19"
_ATTENTION: Final = {
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "flex_attention": "flex_attention",
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "eager_attention": "eager",
}
_SAMPLES: Final = "write generate_samples, num_generation_samples and generation_max_new_tokens"
_MAPPED: Final = "write message_property_mappings: {role: ..., content: ...}"
_OLD: Final = (
    _renamed("noisy_embedding_alpha", "neftune_noise_alpha"),
    _renamed("dpo_beta", "rl_beta"),
    _renamed("evaluation_strategy", "eval_strategy"),
    _renamed("sequence_parallel_degree", "context_parallel_size", "axolotl>=0.15"),
    _renamed("dataset_processes", "dataset_num_proc", "axolotl>=0.15"),
    _renamed("pretrain_multipack_buffer_size", "streaming_multipack_buffer_size", "axolotl>=0.15"),
    Old("eval_table_size", _SAMPLES, "axolotl>=0.15"),
    Old("eval_max_new_tokens", _SAMPLES, "axolotl>=0.15"),
    Old("fsdp", "write what it turns on below fsdp_config", "axolotl>=0.15"),
    Old("fsdp_final_state_dict_type", "write fsdp_config.final_state_dict_type", "axolotl>=0.15"),
    Old(
        "gradient_checkpointing=offload",
        "write gradient_checkpointing: true and activation_offloading: true",
        "axolotl>=0.15",
    ),
    Old(
        "gradient_checkpointing=offload_disk",
        "write gradient_checkpointing: true and activation_offloading: disk",
        "axolotl>=0.15",
    ),
    Old(
        "pretraining_dataset & no streaming",
        "write streaming: true beside it, which will not be turned on any more",
        "axolotl>=0.15",
    ),
    Old("rl=ipo", "write rl: dpo and dpo_loss_type: ['ipo']", _NOW),
    Old("gc_steps", "write torch_empty_cache_steps and gc_collect_steps", _NOW),
    *(
        Old(f"{key}=true & no attn_implementation", f"write attn_implementation: {word}", _NOW)
        for key, word in _ATTENTION.items()
    ),
)
"""axolotl 0.11.0, 0.15.0 and 0.19.0 utils/schemas: config.py (`deprecated=`), deprecated.py and
validation.py, each of which logs a warning."""
_OF_TURNS: Final = ("message_field_role", "message_field_content")


@rule(
    "warning",
    "silent",
    consumers=("axolotl",),
    reads=keys("axolotl", "datasets", *(key_of(each.when) for each in _OLD)),
)
def deprecated_in_axolotl(run: LintContext) -> Iterator[Finding]:
    """The run's release warns of a key or word that a later release will not accept.

    Nothing is reported if no file names the run's release.
    """
    for document in run.of("axolotl"):
        if not document.is_view:
            yield from _keys(run, document)
            yield from _of_data(run, document)


def _keys(run: LintContext, document: Document) -> Iterator[Finding]:
    for each in _OLD:
        at = where(document, each.when) if run.runs(each.since) is True else None
        if at is None or at.value is None:
            continue
        edit = at.renamed(each.renamed) if each.renamed else None
        yield Finding(
            f"Axolotl will drop {each.when.partition(' ')[0].replace('=', ': ')}",
            (at.key_label("deprecated"),),
            (f"{run.release('axolotl').in_words} takes it, and warns at each start",),
            each.help,
            None if edit is None else Fix((edit,), "safe"),
        )


def _of_data(run: LintContext, document: Document) -> Iterator[Finding]:
    """Findings for names of message fields, which one mapping has replaced."""
    sets = document.get("datasets")
    number = len(sets.value) if sets is not None and isinstance(sets.value, list) else 0
    named = (f"datasets[{at}].{key}" for at in range(number) for key in _OF_TURNS)
    at = next((place for key in named if (place := document.get(key)) is not None), None)
    if at is not None and run.runs("axolotl>=0.11") is True:
        yield Finding(
            f"Axolotl will drop {at.path.rpartition('.')[2]}",
            (at.key_label("deprecated"),),
            (f"{run.release('axolotl').in_words} takes it, and warns at each start",),
            _MAPPED,
        )
