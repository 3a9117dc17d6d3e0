"""Keys and values of sd-scripts' configs, which are not validated, and of its commands."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import also
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.scripts.flag_configs import FlagConfigs
from tunec.targets.sd_scripts.packages import PACKAGE

_CONFIGS: Final = FlagConfigs(
    PACKAGE,
    split=("resolution", "face_crop_aug_range"),
    harmless=("sample_sampler", "console_log_level"),
)
"""Texts that `prepare_dataset_args` splits, and flags that nothing checks."""
_SECTIONED: Final = ("sd-scripts", "musubi-tuner")


@rule("error", "silent", consumers=("sd-scripts",), reads=("sd-scripts:*",))
def key_unread_by_sd_scripts(run: LintContext) -> Iterator[Finding]:
    """A key that no parser has: ignored in a config, refused as a flag."""
    return _CONFIGS.unread(run)


@rule("error", "init", consumers=("sd-scripts",), reads=("sd-scripts:*",))
def value_refused_by_sd_scripts(run: LintContext) -> Iterator[Finding]:
    """A value whose type differs from the flag's; a config's values are not converted."""
    yield from _CONFIGS.refused(run)
    for key, (is_fit, wanted, why) in _PARTS.items():
        for place in run.each(PACKAGE, key):
            parts = [each.strip() for each in str(place.value).split(",")]
            if isinstance(place.value, str) and not is_fit(parts):
                yield Finding(
                    f"{key} {place.value} is not {wanted}",
                    (place.label("refused"),),
                    (f"AssertionError: {why}",),
                    f"write {wanted}",
                )
    for first in run.each(PACKAGE, "initial_step"):
        last = first.document.get("max_train_steps")
        epochs = first.document.get("max_train_epochs")
        if last is not None and epochs is None and _is_after(first.value, last.value):
            yield Finding(
                f"training begins at step {first.value}, and ends at step {last.value}",
                (first.label("refused"), *also(last, "the end")),
                ("AssertionError: max_train_steps should be greater than initial step",),
                "write more max_train_steps",
            )


def _is_after(first: object, last: object) -> bool:
    return isinstance(first, int) and isinstance(last, int) and first >= last > 0


_BLOCKS: Final = 23
_PARTS: Final[Mapping[str, tuple[Callable[[list[str]], bool], str, str]]] = {
    "resolution": (
        lambda parts: len(parts) in (1, 2),
        "one size, or a width and a height",
        "resolution must be 'size' or 'width,height'",
    ),
    "face_crop_aug_range": (
        lambda parts: len(parts) == 2 and parts[0] <= parts[1],
        "a lower and a higher number",
        "face_crop_aug_range must be two floats",
    ),
    "block_lr": (
        lambda parts: len(parts) == _BLOCKS,
        f"{_BLOCKS} rates",
        f"block_lr must have {_BLOCKS} values",
    ),
}
"""Texts that are split at commas, and the number of their parts: library/train_util.py
`prepare_dataset_args`, sdxl_train.py `train`."""


@rule("warning", "silent", consumers=_SECTIONED, reads=("sd-scripts:*", "musubi-tuner:*"))
def key_in_two_sections(run: LintContext) -> Iterator[Finding]:
    """A key has different values in two sections of a config: the later one counts."""
    for document in run.of(*_SECTIONED):
        for path, place in document.found.items():
            last = document.get(path.rpartition(".")[2])
            if "." in path and last is not None and last.value != place.value:
                yield Finding(
                    f"{path.rpartition('.')[2]} is {last.value}, and not {place.value}",
                    (place.label("not read"), *also(last, "read")),
                    ("sections mean nothing, and of two keys with one name the later one holds",),
                    "remove one of the two",
                )
