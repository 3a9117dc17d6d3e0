"""What the helps of refusals give as arguments mends the spec: each is put in, and compiles."""

import re
import shlex

import pytest
from planning import asked, spec_of

from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

OLD = {"hardware": "titan-rtx-gtx-1080-ti", "devices": "all"}
CASES = {
    "E0601 bf16 on Pascal": {"hardware": "p100-x1", "precision": "bf16"},
    "E0602 int8 on Pascal": {**OLD, "method": {"int8_lora": {"rank": 4}}},
    "E0602 nf4 on Maxwell": {
        "method": {"qlora": {"format": "fp4", "rank": 4}},
        "hardware": "gaudi-3-x1",
    },
    "E0603 flash on Volta": {"hardware": "v100-32g-x1", "attention": "flash_attention_2"},
    "E0603 pinned": {
        "hardware": "v100-32g-x1",
        "pin": {"attention.implementation": "flash_attention_2"},
        "targets": ["huggingface"],
    },
    "E0604 stochastic rounding": {
        "precision": "fp32",
        "train": {"optimizer": {"name": "adamw_bf16", "weight_decay": 0.1}},
    },
    "E0604 LOMO of adapters": {
        "hardware": "a100-80g-x1",
        "train": {"optimizer": "lomo"},
        "targets": ["trl"],
    },
    "E0604 pinned": {"precision": "fp32", "pin": {"optimizer.name": "adamw_bf16"}},
    "E0605 names of another family": {"method": {"lora": {"targets": ["query_key_value"]}}},
    "E0605 no names": {"method": {"lora": {"targets": []}}, "targets": ["trl"]},
    "E0605 pinned": {"pin": {"adapter.targets": ["c_attn"]}},
    "E0605 trained besides": {"method": {"lora": {"also_train": ["head"]}}},
    "E0606 without Liger": {"pin": {"loss.path": "fused"}, "targets": ["huggingface"]},
    "E0606 by TRL": {
        "pin": {"loss.path": "full"},
        "software": {"trl": "1.16.0"},
        "objective": "dpo",
    },
    "E0702 quantised under ZeRO-3": {"method": "qlora", "pin": {"zero.stage": 3}},
    "E0702 two pins": {
        "pin": {"batch.micro": 3, "batch.global": 16, "batch.accumulation": 1},
        "targets": ["huggingface"],
    },
    "E0702 NVMe that no node has": {
        "method": "full",
        "pin": {"zero.stage": 3, "zero.offload_optimizer": "nvme"},
        "targets": ["huggingface"],
    },
    "E0702 engine of one device": {"engine": "ddp", "hardware": "a100-80g-x1", "targets": ["trl"]},
    "E0702 LOMO on two devices": {
        "method": "full",
        "train": {"optimizer": "lomo"},
        "targets": ["huggingface"],
    },
}


def outcome(case, settings=()):
    loaded = load_mapping(spec_of(**case), settings, targets=REGISTRY.names())
    assert loaded.spec is not None, loaded.diagnostics
    wanted = asked(loaded)
    return compile_spec(loaded, wanted) if wanted else plan(loaded)


def settings_of(text):
    """Each help's arguments for `--set`, as a shell hands them on."""
    assert text is not None
    said = re.findall(r"`(--set [^`]+)`", text)
    said += [line.strip() for line in text.split("\n") if line.strip().startswith("--set")]
    for arguments in said:
        words = shlex.split(arguments)
        assert set(words[::2]) == {"--set"}
        yield words[1::2]


@pytest.mark.parametrize("name", CASES)
def test_what_a_help_gives_as_arguments_mends_the_spec(name):
    found = outcome(CASES[name])
    (told,) = [each for each in found.diagnostics if each.severity == "error"]
    assert told.id == name.partition(" ")[0]
    ways = list(settings_of(told.help))
    assert ways, told.help
    for settings in ways:
        mended = outcome(CASES[name], settings)
        assert mended.ok, (settings, mended.diagnostics)


def test_each_code_is_tried():
    codes = {name.partition(" ")[0] for name in CASES}
    assert codes >= {"E0602", "E0603", "E0604", "E0605", "E0606", "E0702"}
