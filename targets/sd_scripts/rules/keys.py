"""Keys and values of sd-scripts' configs, whose reader checks neither, and of its commands."""

from collections.abc import Iterator
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
"""What `prepare_dataset_args` splits, and what nothing looks at again."""
_SECTIONED: Final = ("sd-scripts", "musubi-tuner")


@rule(
    "key-unread-by-sd-scripts",
    "error",
    "silent",
    consumers=("sd-scripts",),
    reads=("sd-scripts:*",),
)
def key_unread_by_sd_scripts(run: LintContext) -> Iterator[Finding]:
    """A key that no parser has: in a config it is passed over, and as a flag refused."""
    return _CONFIGS.unread(run)


@rule(
    "value-refused-by-sd-scripts",
    "error",
    "init",
    consumers=("sd-scripts",),
    reads=("sd-scripts:*",),
)
def value_refused_by_sd_scripts(run: LintContext) -> Iterator[Finding]:
    """A value of another type than the flag's, which nothing converts in a config."""
    return _CONFIGS.refused(run)


@rule(
    "key-in-two-sections",
    "warning",
    "silent",
    consumers=_SECTIONED,
    reads=("sd-scripts:*", "musubi-tuner:*"),
)
def key_in_two_sections(run: LintContext) -> Iterator[Finding]:
    """A key that two sections of a config give different values: the later one holds."""
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
