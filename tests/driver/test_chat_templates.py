"""Conversations for a tokenizer without a chat template end before the run, with a way out."""

import json

import pytest
import yaml
from transformers.utils.chat_template_utils import render_jinja_template

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.targets.registry import REGISTRY

SAID = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": "2"},
]
CHAT, TEXT = {"messages": SAID}, {"text": "1 + 1 is 2"}
PAIR = {"chosen": SAID, "rejected": SAID}
BASE = "meta-llama/Llama-3.2-1B"


def compiled(folder, target, record=CHAT, model=BASE, objective="sft", extra=None, **data):
    data = {"train": "train.jsonl", "samples": 5000, "sequence": 1024, **data}
    spec = {"tunec": 1, "model": model, "method": "lora", "objective": objective, "data": data}
    spec |= {"hardware": "h100-80g-x1", "extra": extra or {}}
    if record is not None:
        (folder / "train.jsonl").write_text(json.dumps(record))
    (folder / "spec.json").write_text(json.dumps(spec))
    return compile_spec(load_spec(folder / "spec.json"), [REGISTRY.resolve(target)])


def faults(found):
    return [each for each in found.diagnostics if each.id == "E0807"]


@pytest.mark.parametrize(
    ("target", "said", "ends"),
    [
        *((name, {}, True) for name in ("trl", "axolotl", "llamafactory", "openrlhf")),
        ("nemo-automodel", {}, True),
        ("ms-swift", {}, False),
        ("unsloth", {}, False),
        ("trl@0.20", {}, False),
        ("trl", {"record": TEXT}, False),
        ("trl", {"record": None}, False),
        ("trl", {"record": None, "format": "messages"}, True),
        ("axolotl", {"record": None}, True),
        ("trl", {"model": "meta-llama/Llama-3.2-1B-Instruct"}, False),
        ("trl", {"model": "Qwen/Qwen3-8B-Base"}, False),
        ("trl", {"record": PAIR, "objective": "dpo"}, True),
        ("trl@0.20", {"record": PAIR, "objective": "dpo"}, False),
        ("trl", {"extra": {"trl": {"chat_template_path": "mine.jinja"}}}, False),
        ("axolotl", {"extra": {"axolotl": {"chat_template": "llama3"}}}, False),
        ("llamafactory", {"extra": {"llamafactory": {"template": "default"}}}, False),
        *((name, {"chat_template": "plain"}, False) for name in ("trl", "axolotl")),
    ],
)
def test_conversations_need_a_template_where_the_program_has_none_itself(
    tmp_path, target, said, ends
):
    found = compiled(tmp_path, target, **said)
    assert len(faults(found)) == ends
    assert found.ok is not ends


@pytest.mark.parametrize(
    ("target", "way_out"),
    [
        ("trl", "train meta-llama/Llama-3.2-1B-Instruct, or write `chat_template: plain`"),
        ("llamafactory", "`extra: {llamafactory: {template: ...}}`"),
    ],
)
def test_the_fault_names_a_way_out(tmp_path, target, way_out):
    (fault,) = faults(compiled(tmp_path, target))
    assert way_out in (fault.help or "")


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({"tokenizer_config.json": "{}"}, True),
        ({"tokenizer_config.json": '{"chat_template": "{{ messages }}"}'}, False),
        ({"tokenizer_config.json": "{}", "chat_template.jinja": "{{ messages }}"}, False),
        ({"tokenizer_config.json": "no JSON"}, False),
        ({}, False),
    ],
)
def test_the_tokenizer_of_a_local_model_is_asked(tmp_path, files, ends):
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 400}
    config |= {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 4096}
    (tmp_path / "mine").mkdir()
    for name, text in {"config.json": json.dumps(config), **files}.items():
        (tmp_path / "mine" / name).write_text(text)
    assert len(faults(compiled(tmp_path, "trl", model="./mine"))) == ends


@pytest.mark.parametrize(
    ("target", "key"), [("trl", "chat_template_path"), ("axolotl", "chat_template_jinja")]
)
@pytest.mark.parametrize(
    ("given", "path"), [("plain", "{}/chat_template.jinja"), ("mine.jinja", "mine.jinja")]
)
def test_the_template_is_named_by_its_path(tmp_path, target, key, given, path):
    files = compiled(tmp_path, target, chat_template=given).artifacts[target]
    said = next(yaml.safe_load(each.text) for each in files if each.name.endswith(".yaml"))
    assert said[key] == path.format(target)
    assert any(each.name == "chat_template.jinja" for each in files) is (given == "plain")


def in_parts(messages):
    """Messages as programs write them for models that see."""
    return [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in messages]


@pytest.mark.parametrize("target", ["trl", "axolotl"])
@pytest.mark.parametrize("written", [list, in_parts])
def test_the_plain_template_names_roles_and_ends_answers(tmp_path, target, written):
    files = compiled(tmp_path, target, chat_template="plain").artifacts[target]
    text = next(each.text for each in files if each.name == "chat_template.jinja")
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    said, answers = render_jinja_template(
        [written(SAID), written(SAID[:2])],
        chat_template=text,
        return_assistant_tokens_mask=True,
        **tokens,
    )
    (asked,), _ = render_jinja_template(
        [written(SAID[:2])], chat_template=text, add_generation_prompt=True, **tokens
    )
    assert asked == "<s>System: Be brief.\n\nUser: 1 + 1?\n\nAssistant:"
    assert said[0] == f"{asked} 2</s>\n\n"
    marked = [[said[0][start:end] for start, end in each] for each in answers]
    assert marked == ([["2</s>"], []] if target == "trl" else [[], []])


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("bert-base-uncased", {"chat_template": "plain"}),
        (BASE, {"chat_template": "plain", "format": "alpaca"}),
        ("qwen2.5-vl-7b", {"chat_template": "plain", "images": {"per_sample": 1}}),
    ],
)
def test_a_template_without_conversations_is_refused(tmp_path, model, data):
    found = compiled(tmp_path, "trl", record=None, model=model, **data)
    assert "E0802" in [each.id for each in found.diagnostics]


@pytest.mark.parametrize(
    ("model", "data", "end"),
    [
        ("Qwen/Qwen3-8B-Base", {}, "<|im_end|>"),
        ("Qwen/Qwen2.5-7B", {}, "<|im_end|>"),
        ("Qwen/Qwen2.5-7B", {"format": "text"}, None),
        ("Qwen/Qwen2.5-7B", {"chat_template": "plain"}, None),
        ("Qwen/Qwen2.5-7B-Instruct", {}, None),
    ],
)
def test_a_base_model_is_told_where_its_answers_end(tmp_path, model, data, end):
    (sft, *_) = compiled(tmp_path, "trl", record=None, model=model, **data).artifacts["trl"]
    assert sft.values.get("eos_token") == end


def test_what_a_reward_reads_says_nothing_of_data_that_is_not_read(tmp_path):
    rewarded = {"grpo": {"rewards": ["accuracy_reward"], "samples": 8}}
    assert compiled(tmp_path, "trl", record=None, objective=rewarded).ok


def test_a_line_of_which_several_slots_follow_is_shown_once(tmp_path):
    found = compiled(tmp_path, "axolotl", model=BASE).diagnostics
    (told,) = (each for each in found if each.id == "template-the-tokenizer-lacks")
    assert len(told.labels) > 1
    assert len({(each.span, each.text) for each in told.labels}) == len(told.labels)
