"""Files that the consumers themselves write, and other forms of the same files, are read."""

import json

import pytest
from packaging.version import Version

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.schemas import class_schema
from tunec.compiler.consumers.sets import choose, releases
from tunec.compiler.frontend.nodes import plain
from tunec.compiler.frontend.text import Origin
from tunec.compiler.frontend.toml_nodes import parse_toml
from tunec.compiler.read import found_in, found_plain, read, recognise
from tunec.targets.registry import TARGETS

HUGGINGFACE, SIMPLETUNER = TARGETS["huggingface"], TARGETS["simpletuner"]
VERSIONS = tuple(known.version for known in releases("transformers"))
LORA = {
    "r": 4,
    "lora_alpha": 16,
    "task_type": "CAUSAL_LM",
    "target_modules": ["q_proj", "v_proj"],
    "modules_to_save": ["lm_head"],
    "use_rslora": True,
}
SCRIPT = "tunec.targets.huggingface.consumer"


@pytest.fixture(scope="module", params=VERSIONS)
def saved(request):
    """The peft release, the adapter_config.json that it saves, and one with nothing set."""
    questions = [{"verb": "saved", "lora": lora} for lora in (LORA, {})]
    known = choose("transformers", request.param)
    full, bare = ask(prepare(known.requirements), SCRIPT, questions)
    return request.param, full["version"], full["document"], bare["document"]


def test_every_key_that_peft_saves_is_known_with_its_default(saved):
    _, version, document, bare = saved
    properties = class_schema("lora_config", version)["properties"]
    assert set(document) <= set(properties)
    for key in set(bare) - {"peft_type", "peft_version", "auto_mapping", "inference_mode"}:
        assert bare[key] == properties[key]["default"], key


def test_what_peft_saves_is_read(saved):
    release, version, document, _ = saved
    file = recognise(HUGGINGFACE, document)
    assert file is not None
    assert file.name == "adapter_config.json"
    found = {file.name: found_plain(document)}
    said = read(HUGGINGFACE, found, Version(release), {"peft": version})
    slots = {each.slot: each.value for each in said}
    assert slots["adapter.kind"] == "lora"
    assert (slots["adapter.rank"], slots["adapter.alpha"]) == (4, 16.0)
    assert sorted(slots["adapter.targets"]) == ["q_proj", "v_proj"]
    assert slots["adapter.also_train"] == ("lm_head",)
    assert slots["adapter.rslora"] is True


def test_training_arguments_as_json_are_the_same_file():
    document = json.loads('{"output_dir": "out", "per_device_train_batch_size": 3, "bf16": true}')
    file = recognise(HUGGINGFACE, document)
    assert file is not None
    assert file.name == "training_args.yaml"
    said = read(HUGGINGFACE, {file.name: found_plain(document)}, Version("4.57.6"))
    assert {each.slot: each.value for each in said}["batch.micro"] == 3


TOML = """# SimpleTuner's config.toml
model_family = "flux"
model_type = "lora"
train_batch_size = 2
learning_rate = 1e-4
gradient_checkpointing = true
max_train_steps = 100
"""


def test_simpletuner_s_toml_is_read_like_its_json():
    node, faults = parse_toml(TOML, Origin("config.toml"))
    assert node is not None
    assert not faults
    file = recognise(SIMPLETUNER, plain(node))
    assert file is SIMPLETUNER.files[0]
    version = Version(SIMPLETUNER.latest)
    placed = read(SIMPLETUNER, {file.name: found_in(node)}, version)
    bare = read(SIMPLETUNER, {file.name: found_plain(plain(node))}, version)
    assert [(each.slot, each.value) for each in placed] == [
        (each.slot, each.value) for each in bare
    ]
    (micro,) = (each for each in placed if each.slot == "batch.micro")
    assert micro.value == 2
    assert micro.span is not None
    assert (micro.span.line, micro.span.column) == (4, 20)


@pytest.mark.parametrize("version", ["3.1.6", "4.10.1"])
def test_simpletuner_itself_parses_the_toml_like_the_json(version):
    document = {key: each.value for key, each in _fields(TOML).items()}
    asked = [
        {"verb": "resolve", "backend": kind, "files": {f"config/config.{kind}": content}}
        for kind, content in (("toml", TOML), ("json", json.dumps(document)))
    ]
    environment = prepare(choose("simpletuner", version).requirements)
    by_toml, by_json = ask(environment, "tunec.targets.simpletuner.consumer", asked)
    assert by_toml.get("error") == by_json.get("error")
    assert by_toml.get("parsed") == by_json.get("parsed")


def _fields(text):
    node, _ = parse_toml(text, Origin("config.toml"))
    assert node is not None
    return node.fields
