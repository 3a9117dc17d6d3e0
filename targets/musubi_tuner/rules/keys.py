"""Keys and values of musubi-tuner's configs, which are not validated, and of its commands."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.musubi_tuner.packages import PACKAGE
from tunec.targets.scripts.flag_configs import FlagConfigs

# kohya-ss/musubi-tuner 0.2.0 to 0.3.4 utils/train_utils.py `get_last_ckpt_name`: it has no format
_CONFIGS: Final = FlagConfigs(
    PACKAGE, harmless=("sampler_preset",), anyhow={"save_model_as": "safetensors"}
)


@rule("error", "silent", consumers=("musubi-tuner",), reads=("musubi-tuner:*",))
def key_unread_by_musubi_tuner(run: LintContext) -> Iterator[Finding]:
    """A key that no parser has: ignored in a config, refused as a flag."""
    return _CONFIGS.unread(run)


@rule("error", "init", consumers=("musubi-tuner",), reads=("musubi-tuner:*",))
def value_refused_by_musubi_tuner(run: LintContext) -> Iterator[Finding]:
    """A value whose type differs from the flag's; a config's values are not converted."""
    return _CONFIGS.refused(run)
