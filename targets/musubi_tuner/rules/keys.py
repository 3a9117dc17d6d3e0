"""Keys and values of musubi-tuner's configs, which are not validated, and of its commands."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.musubi_tuner.packages import PACKAGE
from tunec.targets.scripts.flag_configs import FlagConfigs

_CONFIGS: Final = FlagConfigs(PACKAGE, harmless=("sampler_preset",))


@rule("error", "silent", consumers=("musubi-tuner",), reads=("musubi-tuner:*",))
def key_unread_by_musubi_tuner(run: LintContext) -> Iterator[Finding]:
    """A key that no parser has: ignored in a config, refused as a flag."""
    return _CONFIGS.unread(run)


@rule("error", "init", consumers=("musubi-tuner",), reads=("musubi-tuner:*",))
def value_refused_by_musubi_tuner(run: LintContext) -> Iterator[Finding]:
    """A value whose type differs from the flag's; a config's values are not converted."""
    return _CONFIGS.refused(run)
