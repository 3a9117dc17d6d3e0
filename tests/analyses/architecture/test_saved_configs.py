"""A config that transformers itself saves is read whole, whatever names its class has for keys."""

import pytest

from tunec.compiler.analyses.architecture import UnusableConfig, derive
from tunec.compiler.analyses.architecture.families import FAMILIES

transformers = pytest.importorskip("transformers")


def saved(family):
    """The config of a family as its class writes it; None if transformers has no class."""
    try:
        return transformers.AutoConfig.for_model(family).to_dict()
    except ValueError:
        return None


CONFIGS = {family: config for family in FAMILIES if (config := saved(family)) is not None}


def test_the_families_are_many():
    assert len(CONFIGS) > 60


@pytest.mark.parametrize("family", CONFIGS)
def test_no_key_is_taken_for_absent_that_has_another_name(family):
    named = transformers.CONFIG_MAPPING[family].attribute_map
    try:
        assumed = derive(CONFIGS[family]).assumed
    except UnusableConfig as fault:
        assumed = tuple(each.path for each in fault.faults if each.found == "nothing")
    config = CONFIGS[family]
    assert not [key for key in assumed if config.get(named.get(key, key)) is not None]
