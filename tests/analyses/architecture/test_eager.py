"""Which families only run plain attention, by what transformers' own classes say."""

import pytest

from tunec.compiler.analyses.architecture.derive import EAGER_FAMILIES
from tunec.compiler.analyses.architecture.families import FAMILIES
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

transformers = pytest.importorskip("transformers")

CAPPED = "gemma2"
"""Its class says so, and its config caps the scores, which the plan knows by that."""


def test_the_families_are_those_whose_class_takes_no_fused_attention():
    auto = transformers.models.auto.modeling_auto
    names = {**auto.MODEL_MAPPING_NAMES, **auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    named = {family: names.get(family) for family in FAMILIES}
    makers = {
        family: getattr(transformers, name)
        for family, name in named.items()
        if isinstance(name, str)
    }
    assert len(makers) > 60
    eager = {family for family, maker in makers.items() if not maker._supports_sdpa}
    assert eager == {*EAGER_FAMILIES, CAPPED}
    takes_flash = {family: makers[family]._supports_flash_attn for family in EAGER_FAMILIES}
    assert takes_flash == EAGER_FAMILIES


@pytest.mark.parametrize("model", ["bloom-560m", "gpt-neo-125m"])
def test_their_files_ask_for_it(model):
    data = {"train": "train.jsonl", "samples": 500, "sequence": 512}
    spec = {"tunec": 1, "model": model, "hardware": "a100-80g-x1", "method": "lora", "data": data}
    found = compile_spec(load_mapping(spec), [REGISTRY.resolve("trl")], repairing=False)
    (file,) = (each for each in found.artifacts["trl"] if each.name == "sft.yaml")
    assert "attn_implementation: eager" in file.text
