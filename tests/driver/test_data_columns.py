"""Data beside the spec whose records a trainer does not read are told of; other data is not."""

import json

import pytest

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.targets.registry import REGISTRY

SAID = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
FORMS = {
    "chat": {"messages": SAID},
    "sharegpt": {"conversations": [{"from": "user", "value": "1 + 1?"}]},
    "turns-by-from": {"messages": [{"from": "user", "value": "1 + 1?"}]},
    "completion": {"prompt": "1 + 1?", "completion": "2"},
    "completion-of-chats": {"prompt": SAID[:1], "completion": SAID[1:]},
    "text": {"text": "1 + 1 is 2"},
    "alpaca": {"instruction": "1 + 1?", "input": "", "output": "2"},
    "pairs-of-texts": {"prompt": "1 + 1?", "chosen": "2", "rejected": "3"},
    "pairs-of-chats": {"chosen": SAID, "rejected": SAID},
    "pairs-of-answers": {"prompt": SAID[:1], "chosen": SAID[1:], "rejected": SAID[1:]},
}
SUPERVISED = {
    "trl": {"chat", "sharegpt", "turns-by-from", "completion", "completion-of-chats", "text"},
    "axolotl": {"chat"},
    "llamafactory": {"chat"},
    "ms-swift": {"chat", "sharegpt", "turns-by-from", "completion", "text", "alpaca"},
}
PAIRS = {
    "trl": {"pairs-of-texts", "pairs-of-chats", "pairs-of-answers"},
    "axolotl": {"pairs-of-chats"},
    "llamafactory": {"pairs-of-texts"},
    "ms-swift": {"pairs-of-texts"},
}


HUMAN = [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}]


def compiled(folder, target, objective="sft", train="train.jsonl", model="qwen3-8b", **said):
    data = {"train": train, "samples": 5000, "sequence": 1024, **said}
    spec = {"tunec": 1, "model": model, "method": "lora", "objective": objective}
    (folder / "spec.json").write_text(json.dumps({**spec, "data": data, "hardware": "h100-80g-x1"}))
    return compile_spec(load_spec(folder / "spec.json"), [REGISTRY.resolve(target)])


def told(folder, target, *said, model="llama-3.2-1b-instruct", **more):
    found = compiled(folder, target, *said, model=model, **more)
    assert found.artifacts, found.diagnostics
    ids = ("data-in-unread-columns", "pictures-out-of-sight")
    return [each for each in found.diagnostics if each.id in ids]


@pytest.mark.parametrize(("objective", "read"), [("sft", SUPERVISED), ("dpo", PAIRS)])
@pytest.mark.parametrize("target", SUPERVISED)
def test_records_that_a_trainer_does_not_read_are_told_of(tmp_path, target, objective, read):
    silent = set()
    for form, record in FORMS.items():
        (tmp_path / "train.jsonl").write_text(f"\n{json.dumps(record)}\n{{\n")
        if not told(tmp_path, target, objective):
            silent.add(form)
    assert silent == read[target]


@pytest.mark.parametrize(
    ("target", "form", "remedy"),
    [
        ("axolotl", "alpaca", "`format: alpaca`"),
        ("axolotl", "sharegpt", "`format: sharegpt`"),
        ("llamafactory", "alpaca", "`format: alpaca`"),
        ("llamafactory", "text", "give the data these columns"),
        ("trl", "alpaca", "give the data these columns"),
    ],
)
def test_the_format_is_named_where_the_trainer_can_be_told(tmp_path, target, form, remedy):
    (tmp_path / "train.jsonl").write_text(json.dumps(FORMS[form]), "utf-8")
    (found,) = told(tmp_path, target)
    assert remedy in (found.help or "")


@pytest.mark.parametrize("target", ["axolotl", "openrlhf", "nemo-automodel"])
@pytest.mark.parametrize(
    ("form", "is_read"), [("completion", True), ("completion-of-chats", False)]
)
def test_prompts_and_answers_are_texts_to_those_that_have_no_other_form(
    tmp_path, target, form, is_read
):
    (tmp_path / "train.jsonl").write_text(json.dumps(FORMS[form]), "utf-8")
    assert (told(tmp_path, target, format="prompt-completion") == []) is is_read


@pytest.mark.parametrize(
    ("record", "is_read"),
    [
        ({"prompt": "1 + 1?"}, True),
        ({"prompt": SAID[:1]}, False),
        ({"messages": SAID[:1]}, True),
        ({"text": "1 + 1?"}, False),
    ],
)
def test_what_is_rewarded_is_asked_by_texts_or_messages(tmp_path, record, is_read):
    (tmp_path / "train.jsonl").write_text(json.dumps(record), "utf-8")
    objective = {"grpo": {"rewards": ["accuracy"]}}
    assert (told(tmp_path, "ms-swift", objective) == []) is is_read


CHAT, SOLVED = {"prompt": SAID[:1]}, {"solution": "2"}


@pytest.mark.parametrize("target", ["trl", "axolotl"])
@pytest.mark.parametrize(
    ("reward", "record", "is_read"),
    [
        ("think_format_reward", {"prompt": "1 + 1?"}, False),
        ("think_format_reward", CHAT, True),
        ("accuracy_reward", CHAT, False),
        ("accuracy_reward", CHAT | SOLVED, True),
        ("mine.short", {"prompt": "1 + 1?"}, True),
    ],
)
def test_what_rewards_of_trl_read_is_there(tmp_path, target, reward, record, is_read):
    (tmp_path / "train.jsonl").write_text(json.dumps(record), "utf-8")
    found = told(tmp_path, target, {"grpo": {"rewards": [reward]}})
    assert (found == []) is is_read
    assert all(each.notes[0].startswith(reward) for each in found)


def test_a_list_of_records_is_looked_at_too(tmp_path):
    (tmp_path / "train.json").write_text(json.dumps([FORMS["text"]], indent=2), "utf-8-sig")
    (found,) = told(tmp_path, "axolotl", train="train.json")
    assert "`text`" in found.message


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "3", "\udcff"])
def test_what_is_no_record_is_passed_over(tmp_path, text):
    (tmp_path / "train.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert told(tmp_path, "axolotl") == []


def test_data_elsewhere_is_not_read(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "train.jsonl").write_text(json.dumps(FORMS["text"]))
    assert told(folder, "axolotl", train="../train.jsonl") == []
    assert told(folder, "axolotl") == []
    (folder / "train.jsonl").symlink_to(tmp_path / "train.jsonl")
    assert told(folder, "axolotl") == []


SEEN = [{"role": "user", "content": [{"type": "image", "path": "pictures/1.png"}]}]
HELD = {"images": ["pictures/1.png"], "messages": SAID}


@pytest.mark.parametrize(
    ("target", "record", "picture", "unseen"),
    [
        ("trl", HELD, "pictures/1.png", True),
        ("trl", HELD, "data/pictures/1.png", True),
        ("trl", HELD, "", False),
        ("trl", {"messages": SEEN}, "pictures/1.png", True),
        ("trl", {**HELD, "images": ["https://example.org/1.png"]}, "pictures/1.png", False),
        ("trl", {**HELD, "images": ["i" * 300]}, "pictures/1.png", False),
        ("ms-swift", HELD, "data/pictures/1.png", False),
        ("ms-swift", HELD, "pictures/1.png", True),
        ("llamafactory", HELD, "data/pictures/1.png", False),
        ("axolotl", {**HELD, "images": [{"path": "pictures/1.png"}]}, "pictures/1.png", True),
    ],
)
def test_pictures_that_a_trainer_looks_for_elsewhere(tmp_path, target, record, picture, unseen):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.jsonl").write_text(json.dumps(record))
    if picture:
        (tmp_path / picture).parent.mkdir()
        (tmp_path / picture).write_bytes(b"")
    found = told(tmp_path, target, train="data/train.jsonl", model="qwen2.5-vl-7b")
    assert [each.id for each in found] == ["pictures-out-of-sight"] * unseen


@pytest.mark.parametrize(
    ("record", "objective"),
    [
        ({"conversations": HUMAN}, "sft"),
        ({"messages": HUMAN}, "sft"),
        ({"messages": [{"role": "human", "content": "1 + 1?"}]}, "sft"),
        ({"chosen": HUMAN, "rejected": HUMAN}, "dpo"),
    ],
)
def test_speakers_that_reach_the_template_by_foreign_names_are_refused(tmp_path, record, objective):
    """TRL 1.16.0 wrote turns of a role `gpt` for such records, and trained on them."""
    (tmp_path / "train.jsonl").write_text(json.dumps(record), "utf-8")
    found = compiled(tmp_path, "trl", objective)
    assert not found.artifacts
    assert "E0808" in {each.id for each in found.diagnostics}


def test_a_template_of_the_spec_s_own_may_know_any_speaker(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps({"conversations": HUMAN}), "utf-8")
    (tmp_path / "own.jinja").write_text("{{ messages }}", "utf-8")
    assert compiled(tmp_path, "trl", chat_template="own.jinja").artifacts


@pytest.mark.parametrize("target", ["axolotl", "llamafactory", "ms-swift"])
def test_trainers_that_know_humans_are_given_them(tmp_path, target):
    (tmp_path / "train.jsonl").write_text(json.dumps({"conversations": HUMAN}), "utf-8")
    said = {} if target == "ms-swift" else {"format": "sharegpt"}
    assert compiled(tmp_path, target, **said).artifacts
