"""The Trainer's arguments without a slot, and what a program does that has no such argument."""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.consumers.moved_keys import Moved, all_gone, gone_unless
from tunec.targets.huggingface.fsdp_row import ARGUMENTS


def _aside(keys: Iterable[str], instead: str) -> Iterator[Moved]:
    """Keys that change nothing of what is trained."""
    return all_gone(keys, ARGUMENTS, instead)


LEAVES: Final = (
    gone_unless("do_train", ARGUMENTS, "the program trains, and does nothing else", True),
    gone_unless("do_predict", ARGUMENTS, "nothing is predicted after training", False),
    gone_unless("push_to_hub", ARGUMENTS, "nothing is uploaded", False),
    gone_unless("hub_model_id", ARGUMENTS, "nothing is uploaded"),
    *_aside(("do_eval",), "the strategy says when to evaluate"),
    *_aside(("hub_strategy", "hub_private_repo", "hub_token"), "nothing is uploaded"),
    *_aside(("log_level", "log_level_replica", "disable_tqdm"), "the program logs in its own way"),
    *_aside(("logging_first_step", "logging_nan_inf_filter"), "the program logs in its own way"),
    *_aside(
        ("dataset_num_proc", "dataloader_persistent_workers"), "as many processes run as usual"
    ),
)
"""What happens without each of these keys, where the new file's reader does not have it."""
