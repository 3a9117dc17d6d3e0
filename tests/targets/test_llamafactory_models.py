"""Models of today for LLaMA-Factory: its template for each, and a transformers that has it."""

import pytest

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_mapping
from tunec.schemas.models.catalogue import card, card_names
from tunec.targets.llamafactory.templates import templates_of
from tunec.targets.registry import REGISTRY

OTHERWISE = {
    "google/medgemma-27b-text-it": "its template for Gemma 3 asks the processor, which text has not"
}
"""Models of the catalogue for which tunec does not take the page's first template."""


def is_base(repository: str) -> bool:
    """Whether the catalogue's weights were not tuned on conversations, though they see images."""
    return repository.endswith(("-pt", "-pt-224", "-pt-448", "-Vision", "-17B-128E", "-17B-16E"))


def test_every_chat_model_of_the_catalogue_has_the_template_that_its_page_offers():
    environment = prepare(choose("llamafactory", "0.9.5").requirements)
    (offered,) = ask(
        environment, "tunec.targets.llamafactory.consumer.templates", [{"verb": "of_models"}]
    )
    own = {name for each in map(card, card_names()) for name in (each.repo, *each.aliases) if name}
    known = {name for name in own & offered.keys() if not is_base(name)} - OTHERWISE.keys()
    assert len(known) > 100
    given = {name: templates_of(name)[:1] for name in known}
    assert given == {name: (offered[name],) for name in known}


def compiled(model, software: dict[str, str] | None = None, **more):
    data = {"train": "train.jsonl", "samples": 5000, "sequence": 2048}
    spec = {"tunec": 1, "model": model, "hardware": "h100-80g-x1", "method": "lora", "data": data}
    spec |= {"software": software or {}, **more}
    return compile_spec(load_mapping(spec), [REGISTRY.resolve("llamafactory")], repairing=False)


@pytest.mark.parametrize(
    ("model", "template", "release"),
    [
        ("Qwen/Qwen3-8B", "qwen3", "4.57.6"),
        ("Qwen/Qwen3.5-4B", "qwen3_5", "5.6.0"),
        ("google/gemma-4-E4B-it", "gemma4n", "5.6.0"),
        ("google/gemma-3-1b-it", "gemma2", "4.57.6"),
        ("zai-org/GLM-4-9B-0414", "glm4", "4.57.6"),
    ],
)
def test_a_model_brings_the_release_that_has_it(model, template, release):
    found = compiled(model)
    (written, *_) = found.artifacts["llamafactory"]
    assert written.values["template"] == template
    assert found.planned.facts.releases["transformers"] == release


def test_a_release_that_the_spec_names_is_kept_and_refused():
    found = compiled("Qwen/Qwen3.5-4B", {"transformers": "4.57.6"})
    assert [each.id for each in found.diagnostics if each.severity == "error"] == ["E0608"]


def of_another_name(model: str, name: str = "./mine"):
    """A catalogue's model in a folder."""
    return {"path": name, "config": dict(card(model).config)}


@pytest.mark.parametrize("model", ["google/gemma-2-2b-it", "google/gemma-3-1b-it"])
def test_a_template_that_takes_no_system_message_alone_has_to_be_named(model):
    mine = of_another_name(model)
    (told,) = [each for each in compiled(mine).diagnostics if each.severity == "error"]
    assert "writing a system message alone" in told.message
    assert compiled(mine, extra={"llamafactory": {"template": "gemma2"}}).ok
    assert compiled(of_another_name(model, f"./{model.rpartition('/')[2]}")).ok
    assert compiled(of_another_name("Qwen/Qwen2.5-7B-Instruct")).ok
