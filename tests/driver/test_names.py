"""Names of the catalogue say which weights are trained; a refusal points at what the spec says."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from planning import planned, spec_of
from tests.cards import first_of_each_family, one_of_each_family

import tunec
from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_mapping, load_spec
from tunec.compiler.resolve import resolve_model
from tunec.compiler.review.explain import explain_text
from tunec.schemas.frozen import replace
from tunec.schemas.models.catalogue import card, card_names
from tunec.targets.registry import REGISTRY

NAMED = ("huggingface", "trl", "simpletuner", "glm4", "minicpm-v", "llama-cookbook")
"""The targets with a key for the weights."""


def others(name):
    """Repositories besides the card's own."""
    return [each for each in (*card(name).aliases, *card(name).siblings) if "/" in each]


SHARED = [name for name in card_names() if others(name)]
"""Cards that describe several weights."""
OTHER_HEADS = {
    name: given
    for name in SHARED
    for given, weights in card(name).siblings.items()
    if "architectures" in weights.config
}
"""Cards with weights of another class, such as a reward model's."""
UNTAKEN = {"stable-diffusion-2-1", "sana-1.6b", "pixart-sigma-xl-2-1024"}
"""Cards that no target's newest release takes: SimpleTuner's `sd2x` ended with 4.0, and it saves no
LoRA of PixArt."""
LARGE = {"deepseek-v3": "h200-x8-n2", "deepseek-v3.2": "h200-x8-n2", "glm-5": "h200-x8-n4"}
"""Cards that one node of the largest devices does not hold, and what does."""
LLAMA_COOKBOOK = {
    "data": {"train": "samsum", "samples": 1000, "sequence": 512},
    "hardware": "h200-x1",
}


@cache
def written(model, target):
    """A target's files for a model, by name; none where it cannot take the model at all."""
    found = derive(card(model).config)
    if found.kind == "diffusion":
        data = {"train": "images", "samples": 1000, "resolution": 512}
    else:
        length = min(1024, found.context or 1024)
        data = {"train": "train.jsonl", "samples": 1000, "sequence": length}
    changes = {"data": data, "hardware": LARGE.get(card(model).name, "h200-x8")}
    if target == "llama-cookbook":
        changes = LLAMA_COOKBOOK
    loaded = load_mapping(spec_of(model=model, **changes))
    compiled = compile_spec(loaded, (REGISTRY.resolve(target),), repairing=False)
    return {each.name: each.text for each in compiled.artifacts.get(target, ())}


def names(repository, text):
    """How often a text names a repository, and not one whose name only begins so."""
    return len(re.findall(rf"(?<![\w./-]){re.escape(repository)}(?![\w./-])", text))


def weights_of(model):
    return resolve_model(model, Path()).path


def kind_of(model):
    return resolve_model(model, Path()).architecture.kind


def takers_of(name):
    """The targets that take a card's own weights."""
    own = card(name).repo
    return [target for target in NAMED if names(own, "\n".join(written(name, target).values()))]


def check(name, given, target):
    """A target names the given weights wherever it names the card's own.

    For those of another kind, such as a reward model's, some files are not written.
    """
    own, ours, theirs = card(name).repo, written(name, target), written(given, target)
    assert theirs.keys() <= ours.keys()
    assert theirs.keys() == ours.keys() or kind_of(given) != kind_of(name), target
    for file, text in theirs.items():
        assert names(given, text) == names(own, ours[file]), (target, file)
        assert not names(own, text), (target, file)


def spellings(name):
    """The names of other weights; one of them also in capitals."""
    return (*others(name), others(name)[0].upper())


@pytest.mark.parametrize("name", one_of_each_family(SHARED))
def test_other_weights_are_written_wherever_the_cards_own_are(name):
    """Each name for one target, and each target for one name: all targets write the same path.

    What a target makes of a name by a table of its own is SimpleTuner's, which alone takes those.
    """
    takers, given = takers_of(name), spellings(name)
    assert bool(takers) == (name not in UNTAKEN)
    for at in range(max(len(given), len(takers)) if takers else 0):
        check(name, given[at % len(given)], takers[at % len(takers)])


@pytest.mark.parametrize("name", sorted(first_of_each_family(OTHER_HEADS)))
def test_weights_with_another_head_are_written_by_the_targets_that_take_it(name):
    takers, given = takers_of(name), OTHER_HEADS[name]
    for target in takers:
        check(name, given, target)
    assert any(written(given, target) for target in takers)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHARED)
def test_other_weights_are_written_by_each_target(name):
    takers = takers_of(name)
    for given in spellings(name):
        for target in takers:
            check(name, given, target)
        assert not takers or any(written(given, target) for target in takers)


def test_every_target_that_names_weights_is_reached():
    cards = first_of_each_family(SHARED)
    reached = {target for name in cards for target in takers_of(name)}
    assert reached == {*NAMED} - {"minicpm-v"}  # its cards have no other names


def test_a_name_without_organisation_means_a_whole_repository():
    assert weights_of("llama-3.1-8b") == "meta-llama/Llama-3.1-8B"
    assert weights_of("gemma-3-27b") == "google/gemma-3-27b-pt"
    assert weights_of("Qwen2.5-7B-Instruct") == "Qwen/Qwen2.5-7B-Instruct"
    assert weights_of("sdxl") == "stabilityai/stable-diffusion-xl-base-1.0"
    for name in SHARED:
        for alias in others(name):
            found = weights_of(alias.rpartition("/")[2].upper())
            assert "/" in found
            assert card(found).name == name


def test_the_modules_are_those_of_the_card_and_the_config_is_the_weights_own():
    base, chat = (resolve_model(f"Qwen/Qwen2.5-7B{each}", Path()) for each in ("", "-Instruct"))
    assert base.architecture.modules == chat.architecture.modules
    assert (base.architecture.context, chat.architecture.context) == (131072, 32768)


def test_equal_weights_are_one_fact_and_others_are_another():
    again, other = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"
    found = resolve_model(again, Path())
    assert resolve_model("llama-3.1-8b", Path()) is found
    assert resolve_model(other, Path()) is not found
    assert resolve_model(other, Path()).architecture is found.architecture


def test_what_was_remembered_of_the_base_is_not_said_of_its_sibling():
    for model in ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"):
        assert planned(model=model).plan.model.path == weights_of(model)


def test_explain_says_on_which_card_the_modules_rest():
    found = planned(model="lmsys/vicuna-7b-v1.5")
    assert "model: meta-llama" not in explain_text(found, "model.path")
    told = "the catalogue's config of llama-2-7b (meta-llama/Llama-2-7b-hf)"
    assert told in explain_text(found, "model.parameters")
    assert "catalogue" not in explain_text(planned(model="llama-2-7b"), "model.parameters")


@pytest.mark.parametrize("name", SHARED)
def test_all_weights_of_a_card_have_an_architecture(name):
    for each in others(name):
        assert derive(card(each).config).parameters > 0, each


SPEC = """\
tunec: 1
model: qwen2.5-1.5b
hardware: a100-80g-x1
method: qlora
objective: {grpo: {rewards: [think_format_reward]}}
data: {train: org/data, samples: 5000, sequence: 2048}
"""


def refused(text, name):
    found = tunec.compile(text, targets=[name]).diagnostics
    return [each for each in found if each.severity == "error"]


def test_a_decided_slot_is_told_where_it_follows_from():
    (error,) = refused(SPEC, "trl@0.20")
    assert "quantization.format" in error.message
    assert error.span.line == 4
    assert error.help.startswith("use trl 0.22.2 or later, ")


def test_a_pinned_slot_is_told_at_its_pin():
    text = SPEC.replace("objective: {grpo: {rewards: [think_format_reward]}}\n", "engine: fsdp\n")
    text = text.replace("x1", "x8").replace("qlora", "full")
    (error,) = refused(f"{text}pin: {{fsdp.version: 2}}\n", "huggingface@4.57")
    assert error.span.line == 7


def test_a_script_of_its_own_target_has_no_unknown_flags():
    text = SPEC.replace("objective: {grpo: {rewards: [think_format_reward]}}\n", "")
    text = (
        text.replace("qlora", "lora")
        .replace("org/data", "alpaca")
        .replace("qwen2.5-1.5b", "llama-3.2-1b")
    )
    result = tunec.compile(text, targets=["llama-cookbook"])
    assert result.ok
    assert [each.id for each in result.diagnostics if "flag" in each.id] == []


def pipeline(folder, name, **changed):
    """A folder as diffusers saves a pipeline, with the denoiser's config of a card."""
    part = "unet" if "UNet" in card(name).config["_class_name"] else "transformer"
    (folder / part).mkdir(parents=True)
    (folder / part / "config.json").write_text(json.dumps({**card(name).config, **changed}))
    edits = card(name).edits
    index = {"_class_name": edits.pipeline} if edits and edits.pipeline else {}
    (folder / "model_index.json").write_text(json.dumps(index))
    return part


EDITORS = [name for name in card_names() if (found := card(name)).edits and found.edits.least]
"""Models that need reference images: their denoisers are those of other models."""


@pytest.mark.parametrize(
    "name", ["sdxl-base-1.0", "sd3.5-medium", "qwen-image", "flux.2-klein-4b", *EDITORS]
)
def test_a_folder_of_a_pipeline_is_planned_like_the_repository_that_it_copies(name, tmp_path):
    part = pipeline(tmp_path / "local", name)
    published = resolve_model(card(name).repo, tmp_path)
    for given in ("./local", f"./local/{part}"):
        found = resolve_model(given, tmp_path)
        assert found.path == str(tmp_path / "local")
        assert replace(found, path=published.path) == published


@pytest.mark.parametrize("name", EDITORS)
@pytest.mark.parametrize("references", [[], ["before"]])
def test_a_copy_of_a_model_that_edits_is_not_trained_without_its_flavour(
    name, references, tmp_path
):
    """Its denoiser is that of a model that generates from text alone, whose flavour is written."""
    pipeline(tmp_path / "local", name)
    data = {"train": "after", "samples": 100, "resolution": 512, "references": references}
    spec = spec_of(model="./local", hardware="h100-80g-x1", data=data, train={"steps": 100})
    (tmp_path / "spec.yaml").write_text(json.dumps(spec), "utf-8")
    target = [REGISTRY.resolve("simpletuner")]
    local = compile_spec(load_spec(tmp_path / "spec.yaml"), target, repairing=False)
    assert [each.id for each in local.diagnostics if each.severity == "error"] == ["E0905"]
    asked = load_spec(tmp_path / "spec.yaml", overrides=[f"model={name}"])
    published = compile_spec(asked, target, repairing=False)
    assert bool(published.artifacts) == bool(references), published.diagnostics
    assert published.planned.memory == local.planned.memory


@pytest.mark.parametrize("folder", ["model", "hardware", "repository"])
def test_a_folder_with_the_name_of_a_model_or_a_cluster_hides_neither(folder, tmp_path):
    """What is compiled into a folder that is named after the model leaves the spec as it was."""
    spec = {**spec_of(model="qwen2.5-0.5b", hardware="a100-80g-x1"), "targets": ["trl"]}
    if folder == "repository":
        spec["model"] = "Qwen/Qwen2.5-0.5B"
    name = spec["hardware" if folder == "hardware" else "model"]
    (tmp_path / "spec.yaml").write_text(json.dumps(spec), "utf-8")
    before = compile_spec(load_spec(tmp_path / "spec.yaml"), [REGISTRY.resolve("trl")])
    (tmp_path / name / "trl").mkdir(parents=True)
    after = compile_spec(load_spec(tmp_path / "spec.yaml"), [REGISTRY.resolve("trl")])
    assert before.artifacts
    assert after.artifacts == before.artifacts, after.diagnostics


def test_a_folder_that_holds_a_config_is_the_model_of_its_name(tmp_path):
    given = dict(card("qwen2.5-0.5b").config)
    (tmp_path / "llama-3.1-8b").mkdir()
    (tmp_path / "llama-3.1-8b" / "config.json").write_text(json.dumps(given), "utf-8")
    assert resolve_model("llama-3.1-8b", tmp_path).path == str(tmp_path / "llama-3.1-8b")


def test_a_denoiser_of_its_own_takes_the_adapters_of_its_class(tmp_path):
    pipeline(tmp_path / "local", "sd3.5-medium", num_layers=12)
    found = resolve_model("./local", tmp_path)
    assert (found.card, found.components) == (None, ())
    assert found.lora_targets == card("sd3.5-medium").lora_targets
