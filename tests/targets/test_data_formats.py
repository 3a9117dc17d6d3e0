"""What a record of training data looks like, as each trainer is told it, or refuses it.

Axolotl 0.19.0 and LLaMA-Factory 0.9.5 loaded a file of each format by what is written here:
 both learned the answer of a conversation, Axolotl the completion of a prompt and all of a text.
"""

import pytest
import yaml
from tests.small_spec import SPEC
from tests.tables import rows

import tunec


def compiled(target: str, form: str | None, **changed):
    small = yaml.safe_load(SPEC) | {"hardware": "a100-80g-x1"}
    data = {**small["data"], **({} if form is None else {"format": form})}
    text = yaml.safe_dump({**small, "data": data, **changed})
    return tunec.compile(text, targets=[target])


def written(target: str, form: str | None, file: str):
    made = compiled(target, form)
    assert made.ok, [each.message for each in made.diagnostics]
    return next(each for each in made.artifacts[target] if each.name == file).values


@pytest.mark.parametrize(*rows(__file__, "test_axolotl_is_told_how_prompts_are_made"))
def test_axolotl_is_told_how_prompts_are_made(form, told):
    (said,) = written("axolotl", form, "axolotl.yaml")["datasets"]
    assert {key: each for key, each in said.items() if key not in ("path", "split")} == told


@pytest.mark.parametrize(
    ("form", "formatting", "columns"),
    [
        (None, "sharegpt", {"messages": "messages"}),
        ("sharegpt", "sharegpt", {"messages": "conversations"}),
        ("alpaca", "alpaca", {"prompt": "instruction", "query": "input", "response": "output"}),
    ],
)
def test_llamafactory_is_told_the_columns(form, formatting, columns):
    said = written("llamafactory", form, "dataset_info.json")["train"]
    assert (said["formatting"], said["columns"]) == (formatting, columns)


_TAGS = {"user_tag": "human", "assistant_tag": "gpt", "system_tag": "system"}
"""Those of a set without a block of tags: llamafactory 0.9.5 data/parser.py `DatasetAttr`."""


@pytest.mark.parametrize(
    ("form", "speakers"),
    [(None, ("user", "assistant", "system")), ("sharegpt", ("human", "gpt", "system"))],
)
def test_llamafactory_takes_conversations_of_every_speaker(form, speakers):
    tags = written("llamafactory", form, "dataset_info.json")["train"].get("tags", _TAGS)
    assert tuple(tags.get(each) for each in _TAGS) == speakers


@pytest.mark.parametrize(
    ("target", "refused"),
    [
        ("trl", {"alpaca", "sharegpt"}),
        ("axolotl", set()),
        ("llamafactory", {"prompt-completion", "text"}),
        ("ms-swift", {"text"}),
        ("openrlhf", {"sharegpt", "alpaca", "text"}),
        ("nemo-automodel", {"alpaca", "text"}),
    ],
)
def test_what_a_trainer_cannot_read_is_refused(target, refused):
    forms = ("messages", "sharegpt", "alpaca", "prompt-completion", "text")
    found = {form: compiled(target, form).diagnostics for form in forms}
    told = {form for form in forms if any("data.format" in e.message for e in found[form])}
    assert told == refused


def test_pairs_have_columns_of_their_own():
    found = compiled("trl", "alpaca", objective="dpo").diagnostics
    assert [each.id for each in found if each.severity == "error"] == ["E0802"]
