"""Axolotl and LLaMA-Factory: their makers' examples are read, by rows that their schemas know."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from tests.source_packages import source_package
from tests.tables import rows, tuples

import tunec.schemas
from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.shell_nodes import read_script
from tunec.compiler.frontend.text import MAX_BYTES
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import LEFT_OPEN
from tunec.compiler.lints.kinds import EXPLAINED
from tunec.compiler.read import found_in, found_plain, read, recognise
from tunec.compiler.target import Target
from tunec.targets.axolotl.packages import SCHEMAS
from tunec.targets.axolotl.target import TARGET as AXOLOTL
from tunec.targets.launch.flags import TARGET as LAUNCHERS
from tunec.targets.llamafactory.target import TARGET as LLAMAFACTORY
from tunec.targets.registry import READERS, Targets

FOLDER = Path(tunec.schemas.__file__).parent / "json"
RELEASES = [
    pytest.param(target, release, id=f"{target.name}@{release}")
    for target, releases in ((AXOLOTL, SCHEMAS), (LLAMAFACTORY, LLAMAFACTORY.releases))
    for release in releases
]
EXAMPLES = [
    pytest.param(AXOLOTL, "0.19.0", 270, id="axolotl"),
    pytest.param(LLAMAFACTORY, "0.9.5", 55, id="llamafactory"),
]

# Names of keys in other releases, or of a plugin's own class, that a row reads beside the one of
# its release.
OTHER_NAMES = {
    "axolotl": {
        *("use_trackio", "chunked_cross_entropy"),
        *("liger_fused_linear_cross_entropy", "cut_cross_entropy"),
        *("liger_rope", "liger_rms_norm", "liger_glu_activation"),
    },
    "llamafactory": {"evaluation_strategy", EXPLAINED},
}

# Keys of the makers' own examples that their release does not know, with what becomes of each.
UNKNOWN: dict[str, dict[str, str]] = {
    "axolotl": {
        **dict.fromkeys(
            ("gptq_model_v1", "gptq_groupsize"),
            "nothing in the release names it; dropped in silence",
        ),
        "gptq_disable_exllama": "loaders/model.py asks for it, and the schema drops it before",
        "debug": "common/datasets.py asks for it, and the schema drops it before; it is a flag too",
        "eta_min": "nothing in the release names it: torch's name, for lr_scheduler_kwargs",
        "adam_eps": "nothing in the release names it: adam_epsilon is meant",
        "context_parapllel_size": "nothing in the release names it: context_parallel_size is meant",
        "base_model_ignore_patterns": "nothing in the release names it",
        "sample_packing_seq_len_multiplier": "nothing in the release names it",
        "torch_dtype": "no field: bf16 and fp16 settle it (utils/config/__init__.py)",
        "test_value": "nothing in the release names it: a test of the container's own",
        **dict.fromkeys(
            ("relora_steps", "relora_warmup_steps", "relora_anneal_steps"),
            "no fields of this release, which has jagged_restart_* (monkeypatch/relora.py)",
        ),
    },
    "llamafactory": dict.fromkeys(
        (
            *("tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size"),
            *("bias_activation_fusion", "apply_rope_fusion", "use_distributed_optimizer"),
            *("overlap_param_gather", "overlap_grad_reduce", "moe_grouped_gemm"),
            *("moe_token_dispatcher_type", "expert_model_parallel_size", "recompute_granularity"),
        ),
        "a field of mcore_adapter's TrainingArguments, used with the variable USE_MCA",
    ),
}


def schema_of(target: Target, release: str) -> dict[str, Any]:
    file = target.files[0]
    assert file.schema is not None
    path = file.schema(target.dialect(Version(release)))
    assert path is not None
    found: dict[str, Any] = json.loads((FOLDER / path).read_text("utf-8"))
    return found


def known_keys(schema: dict[str, Any]) -> set[str]:
    plugins = schema.get("x-plugins", {}).values()
    return set(schema["properties"]).union(*(each["properties"] for each in plugins))


def documents(target: Target, folder: Path) -> Iterator[tuple[Path, Node]]:
    """The files of a folder that are the target's."""
    for file in sorted(folder.rglob("*")):
        if file.suffix not in (".yaml", ".yml", ".json") or file.stat().st_size > MAX_BYTES:
            continue
        is_json = file.suffix == ".json"
        node, faults = parse(file.read_bytes(), file.name, "json" if is_json else "yaml")
        assert node is not None, (file, faults)
        if node.fields is not None and recognise(target, plain(node)) is target.files[0]:
            yield file, node


# ── tables ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", READERS)
def test_every_row_has_a_source_known_slots_and_a_release(name):
    target = Targets(READERS)[name]
    releases = {"": target.releases, target.package: target.releases}
    releases |= {each: known.releases for each, known in target.beside.items()}
    for file in target.files:
        for entry in file.entries:
            assert entry.source.strip()
            assert set(entry.slots) <= set(SLOTS)
            known = [Version(text) for text in releases[entry.package]]
            assert any(entry.holds_at(version) for version in known), entry.keys


@pytest.mark.parametrize(("target", "release"), RELEASES)
def test_every_key_of_a_row_is_in_the_schema_of_its_release(target, release):
    schema = schema_of(target, release)
    assert schema["x-consumer"] == f"{target.package}=={release}"
    dialect = target.dialect(Version(release))
    rows = (each for each in target.files[0].entries if each.holds_in(dialect))
    keys = {key for entry in rows for key in entry.keys}
    strangers = {key.partition(".")[0] for key in keys} - set(schema["properties"])
    assert strangers <= OTHER_NAMES[target.name]


@pytest.mark.parametrize(("target", "release"), RELEASES)
def test_absent_values_are_the_schemas_defaults(target, release):
    """Where a row ties one key to one slot and says what absent means, the class says the same.

    None leaves it to the program, whose default is then right, whatever it is.
    """
    schema = schema_of(target, release)
    checked = 0
    dialect = target.dialect(Version(release))
    for entry in target.files[0].entries:
        if not entry.holds_in(dialect):
            continue
        (key, *further) = [each for each in entry.keys if each not in entry.beside] or [""]
        if further or len(entry.slots) != 1 or "." in key:
            continue
        default = schema["properties"].get(key, {}).get("default")
        said = entry.defaults_at(dialect[entry.package])
        is_open = not LEFT_OPEN.isdisjoint(said) and None in said.values()
        if default is not None and said and not is_open:
            assert dict(entry.read({key: default})) == dict(said), entry.keys
            checked += 1
    assert checked >= 5


# ── values ───────────────────────────────────────────────────────────────────────────────────────


def slots(target: Target, document: dict[str, Any], release: str) -> dict[str, Any]:
    """What a document says, observed or absent: the last word on each slot."""
    file = target.files[0]
    found = read(target, {file.name: found_plain(document)}, Version(release))
    return {each.slot: each.value for each in sorted(found, key=lambda each: each.rank)}


@pytest.mark.parametrize(*rows(__file__, "test_axolotl"))  # fmt: skip
@pytest.mark.parametrize("release", AXOLOTL.releases)
def test_axolotl(document, expected, release):
    said = slots(AXOLOTL, document, release)
    assert {slot: said.get(slot) for slot in expected} == tuples(expected)


@pytest.mark.parametrize("document", [{"bf16": "auto", "fp16": True}, {"fp16": True}])
def test_fp16_beside_bf16_auto_depends_on_the_device_before_axolotl_0_9(document):
    for release in AXOLOTL.releases:
        compute = slots(AXOLOTL, document, release).get("precision.compute")
        assert compute == (None if Version(release) < Version("0.9") else "fp16"), release


@pytest.mark.parametrize(
    ("document", "slot"),
    [
        ({"bf16": "auto"}, "precision.compute"),
        ({"save_steps": 0.25}, "schedule.save_steps"),
        ({"saves_per_epoch": 2}, "schedule.save_steps"),
        ({"warmup_ratio": 0.1}, "schedule.warmup_steps"),
        ({"lora_target_linear": True, "lora_target_modules": ["q"]}, "adapter.targets"),
        ({"optimizer": "muon"}, "optimizer.name"),
    ],
)
def test_axolotl_leaves_open_what_the_file_does_not_say(document, slot):
    assert slot not in slots(AXOLOTL, document, "0.19.0")


@pytest.mark.parametrize(*rows(__file__, "test_llamafactory"))  # fmt: skip
@pytest.mark.parametrize("release", LLAMAFACTORY.releases)
def test_llamafactory(document, expected, release):
    said = slots(LLAMAFACTORY, document, release)
    assert {slot: said.get(slot) for slot in expected} == tuples(expected)


def test_code_of_the_models_own_ran_unasked_before_0_9_2():
    assert slots(LLAMAFACTORY, {}, "0.9.1")["model.trust_remote_code"] is True
    assert slots(LLAMAFACTORY, {}, "0.9.3")["model.trust_remote_code"] is False


@pytest.mark.parametrize(*rows(__file__, "test_launchers"))  # fmt: skip
def test_launchers(script, expected):
    (document,) = read_script(script, "train.sh")
    file = recognise(LAUNCHERS, plain(document.node))
    assert file is not None
    found = read(LAUNCHERS, {file.name: found_in(document.node)}, Version(LAUNCHERS.latest))
    said = {each.slot: each.value for each in sorted(found, key=lambda each: each.rank)}
    assert {slot: said.get(slot) for slot in expected} == tuples(expected)


# ── what the makers ship ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("target", "release", "fewest"), EXAMPLES)
def test_shipped_examples_are_read_and_every_key_is_known(target, release, fewest):
    folder = source_package(target.package, release)
    known = known_keys(schema_of(target, release))
    file = target.files[0]
    count, strangers = 0, set()
    for _, node in documents(target, folder):
        settled = read(target, {file.name: found_in(node)}, Version(release))
        assert any(each.span is not None for each in settled)
        strangers |= set(node.fields or ()) - known
        count += 1
    assert count >= fewest
    assert strangers == set(UNKNOWN[target.name])


@pytest.mark.parametrize(("target", "release", "_"), EXAMPLES)
def test_shipped_scripts_are_read(target, release, _):
    scripts = list(source_package(target.package, release).rglob("*.sh"))
    for file in scripts:
        read_script(file.read_text("utf-8"), file.name)
    assert scripts
