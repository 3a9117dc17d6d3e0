"""`tunec data`: records of every form, counted as transformers counts; faults by their lines."""

import json
import os
import shutil

import pytest

from tunec.compiler.dataset.counting import Characters, Tokenizer
from tunec.compiler.dataset.forms import FORMS, RecordNotOfForm, form_of, sample_of
from tunec.compiler.dataset.measuring import Source, measure
from tunec.compiler.dataset.templates import ChatTemplate
from tunec.compiler.dataset.tokenizers import find
from tunec.schemas.models.catalogue import card

TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{%- for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}"
    "{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}\n"
    "{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = "the quick brown fox jumps over a lazy dog and asks what is the capital of a country"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer of its own, as a model's repository has it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([WORDS, "user assistant system"] * 3, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))]
    )
    place = tmp_path_factory.mktemp("tokenizer")
    made.save(str(place / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"__type": "AddedToken", "content": "<s>"},
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "chat_template": TEMPLATE,
    }
    (place / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return place


@pytest.fixture(scope="module")
def counter(folder):
    files = find("", folder)
    return Tokenizer(files, ChatTemplate(files.template, files.special))


USER = {"role": "user", "content": "what is the capital"}
ANSWER = {"role": "assistant", "content": "the capital is a country"}
CHAT = [{"role": "system", "content": "a fox"}, USER, ANSWER, USER, ANSWER]
RECORDS = {
    "messages": {"messages": CHAT, "tools": json.dumps([{"name": "dog"}])},
    "conversations": {
        "system": "a fox",
        "conversations": [
            {"from": "human", "value": USER["content"]},
            {"from": "gpt", "value": ANSWER["content"]},
        ],
    },
    "instructions": {"instruction": "what is", "input": "a dog", "output": "lazy"},
    "prompts and completions": {"prompt": [USER], "completion": [ANSWER]},
    "pairs": {"prompt": [USER], "chosen": [ANSWER], "rejected": [{**ANSWER, "content": "no"}]},
    "text": {"text": WORDS},
    "prompts": {"prompt": [USER]},
}


def test_every_form_is_known_by_its_columns():
    assert {form.name for form in FORMS} == set(RECORDS)
    assert {name: form_of(record).name for name, record in RECORDS.items()} == {
        name: name for name in RECORDS
    }


def rendered(real, messages, **more):
    return len(real.apply_chat_template(messages, tokenize=True, return_dict=False, **more))


def test_lengths_are_those_of_transformers(folder, counter):
    from transformers import PreTrainedTokenizerFast

    real = PreTrainedTokenizerFast.from_pretrained(folder)
    found = {
        name: counter.count([sample_of(record, form_of(record))])[0]
        for name, record in RECORDS.items()
    }
    tools = [{"name": "dog"}]
    asked = {"add_generation_prompt": True}
    short = [{"role": "user", "content": "what is\na dog"}]
    said = [{"role": "system", "content": "a fox"}, USER]
    assert found == {
        "messages": (
            rendered(real, CHAT, tools=tools),
            rendered(real, CHAT[:2], tools=tools, **asked),
        ),
        "conversations": (rendered(real, [*said, ANSWER]), rendered(real, said, **asked)),
        "instructions": (
            rendered(real, [*short, {"role": "assistant", "content": "lazy"}]),
            rendered(real, short, **asked),
        ),
        "prompts and completions": (
            rendered(real, [USER, ANSWER]),
            rendered(real, [USER], **asked),
        ),
        "pairs": (rendered(real, [USER, ANSWER]), rendered(real, [USER], **asked)),
        "text": (len(real(WORDS + "</s>")["input_ids"]), 0),
        "prompts": (rendered(real, [USER]), rendered(real, [USER])),
    }
    plain = sample_of(
        {"prompt": "a dog", "completion": " asks"}, form_of({"prompt": 1, "completion": 1})
    )
    whole, before = (len(real(each)["input_ids"]) for each in ("a dog asks</s>", "a dog"))
    assert counter.count([plain]) == [(whole, before)]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"messages": []}, "`messages` is empty"),
        ({"messages": "hello"}, "`messages` must be a list of messages"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, 'of the role `"narrator"`'),
        ({"messages": [{"role": "user"}]}, "message 1 has no content"),
        ({"text": 3}, "`text` must be text, and is `3`"),
        ({"prompt": "a", "completion": None}, "it has no `completion`"),
        ({"question": "a"}, "it has the columns `question`"),
    ],
)
def test_what_is_no_sample(record, why):
    with pytest.raises(RecordNotOfForm) as refused:
        sample_of(record, form_of(record))
    assert why in str(refused.value)


def test_all_faults_of_a_file_with_their_lines(tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"text": "a"}\n{"text": }\n\n[1]\n{"text": 3}\n{"txt": "a"}\n', "utf-8")
    found = measure([Source(file)], Characters())
    assert found.measured is None
    assert [(each.span.line, each.span.column) for each in found.faults] == [
        (2, 10),
        (4, 1),
        (5, 1),
        (6, 1),
    ]


def test_files_of_every_kind_hold_the_same(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    records = [{"text": WORDS[: 5 * at]} for at in range(1, 9)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    (tmp_path / "a.json").write_text(json.dumps({"data": records}), "utf-8")
    (tmp_path / "a.csv").write_text("text\n" + "\n".join(r["text"] for r in records), "utf-8")
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    found = [
        measure([Source(tmp_path / f"a.{kind}")], Characters()).measured.order
        for kind in ("jsonl", "json", "csv", "parquet")
    ]
    assert found == [found[0]] * 4
    assert len(found[0]) == 8


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.parquet", b"no parquet", "Parquet: "),
        ("a.csv", b"text,more\n1\n", "it ends before the column `more`"),
        ("a.csv", b"text\n1,2\n", "it has more fields than the first line names"),
        ("a.json", b'{"a": 1}', "it holds no list of records"),
        ("a.jsonl", b"\xff\xfe{", "it is not UTF-8 text"),
        ("a.jsonl", b"", "holds no sample"),
        ("a.xlsx", b"", "has no suffix of a data file"),
        ("a.jsonl", b'{"text": "a\\ud800b"}', "half of a surrogate pair"),
        ("a.json", b'[{"text": "a\\uD800b"}]', "half of a surrogate pair"),
        ("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}", "JSON: Exceeds the limit"),
        ("a.json", b'[{"text": ' + b"9" * 5000 + b"}]", "JSON: Exceeds the limit"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    found = measure([Source(tmp_path / name)], Characters())
    assert found.measured is None
    assert why in found.faults[0].message


@pytest.fixture
def trained(tmp_path):
    """A spec beside its data: eight chats, the third without an answer, the last one long."""
    rows = [{"messages": CHAT[1:3]} for _ in range(8)]
    rows[2] = {"messages": [USER]}
    rows[7] = {"messages": [{**USER, "content": WORDS * 3}, ANSWER]}
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    spec = """
tunec: 1
model: llama-3.2-1b
method: lora
data: {train: train.jsonl, sequence: 48}
batch: {global: 4}
hardware: a100-80g-x1
"""
    (tmp_path / "spec.yaml").write_text(spec, "utf-8")
    return tmp_path


def test_lengths_of_a_spec_are_measured_kept_and_used(tunec, trained, folder):
    spec, kept = trained / "spec.yaml", trained / "lengths.json"
    told = tunec("data", "--spec", spec, "--tokenizer", folder, "--format", "json", "-o", kept)
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert [each["line"] for each in found["unlearned"]] == [3, 8]
    assert (found["samples"], found["truncated"]["samples"], found["steps"]) == (8, 1, 2)
    assert found["longest_batch_bytes"] == found["planned_bytes"], "the longest is cut at 48"
    planned = tunec("plan", spec, "--set", "data.lengths=lengths.json", "--format", "json")
    assert json.loads(planned.out)["plan"]["schedule.steps"] == 2
    assert "2 samples have no answer before the cut" in planned.out
    small = ("data.lengths=lengths.json", "data.loss_on=answers", "batch.global=2")
    sets = [word for each in small for word in ("--set", each)]
    steps = {"trl@1.8": 4, "trl@1.16.0": 3, "axolotl": 3}
    for target, expected in steps.items():
        planned = tunec("plan", spec, *sets, "--set", f"targets=[{target}]", "--format", "json")
        assert json.loads(planned.out)["plan"]["schedule.steps"] == expected, target
    sets += ["--set", "targets=[trl@1.16.0]"]
    assert "alone, they are left out" in tunec("plan", spec, *sets, "--format", "json").out
    packed = tunec("plan", spec, *sets, "--set", "data.packing=true", "--format", "json")
    assert "alone, they teach nothing" in packed.out
    again = ("data", trained / "train.jsonl", "--model", "meta-llama/Llama-3.2-1B")
    same = tunec(*again, "--tokenizer", folder, "--check", kept)
    assert (same.code, "as measured" in same.err) == (0, True)
    with (trained / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"messages": CHAT}))
    assert tunec(*again, "--tokenizer", folder, "--check", kept).code == 1
    assert "lengths-stale" in tunec("plan", spec, "--set", "data.lengths=lengths.json").err


def test_a_spec_may_name_the_file_of_lengths_before_it_is_there(tunec, trained, folder):
    """The spec's model is a folder beside it, and the file is the one of another run later."""
    shutil.copytree(folder, trained / "mine")
    (trained / "mine" / "config.json").write_text(json.dumps(card("llama-3.2-1b").config))
    spec, kept = trained / "spec.yaml", trained / "lengths.json"
    said = spec.read_text("utf-8").replace("model: llama-3.2-1b", "model: ./mine")
    spec.write_text(said.replace("data: {", "data: {lengths: lengths.json, "), "utf-8")
    early = tunec("plan", spec)
    assert (early.code, "tunec data --spec SPEC -o FILE" in early.err) == (1, True)
    for changed in ("", json.dumps({"messages": CHAT})):
        with (trained / "train.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n" + changed)
        told = tunec("data", "--spec", spec, "-o", kept)
        assert (told.code, "lengths-stale" in told.err) == (0, False), told.err
        assert "lengths-stale" not in tunec("plan", spec).err


def test_conversations_are_measured_with_the_template_of_their_spec(tunec, trained, folder):
    spec, kept = trained / "spec.yaml", trained / "lengths.json"
    own = spec.read_text("utf-8").replace("data: {", "data: {lengths: lengths.json, ")
    counted = {}
    for template in ("plain", "own.jinja"):
        (trained / "own.jinja").write_text("{{ messages[0]['content'] }}", "utf-8")
        text = own.replace("data: {", f"data: {{chat_template: {template}, ")
        spec.write_text(text, "utf-8")
        told = tunec("data", "--spec", spec, "--tokenizer", folder, "-o", kept)
        assert told.code == 0, told.err
        counted[template] = json.loads(kept.read_text("utf-8"))["counts"]
        assert template in told.out
        assert "lengths-stale" not in tunec("plan", spec).err
    assert counted["plain"] != counted["own.jinja"]
    spec.write_text(text.replace("own.jinja", "plain"), "utf-8")
    assert "measured with another chat template than plain" in tunec("plan", spec).err


def test_only_the_first_samples_that_a_spec_takes_are_measured(tunec, trained, folder):
    spec = trained / "spec.yaml"
    text = spec.read_text("utf-8").replace(
        "train: train.jsonl", "train: {path: train.jsonl, samples: 5}"
    )
    spec.write_text(text, "utf-8")
    told = tunec("data", "--spec", spec, "--tokenizer", folder, "--format", "json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert [each["line"] for each in found["unlearned"]] == [3]
    assert (found["samples"], found["steps"]) == (5, 2)


def test_a_tokenizer_that_is_not_here_is_told_with_what_fetches_it(tunec, trained, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(trained))
    told = tunec("data", trained / "train.jsonl", "--model", "llama-3.2-1b")
    assert told.code == 1
    assert "hf download meta-llama/Llama-3.2-1B --include" in " ".join(told.err.split())
    both = tunec("data", trained / "none.jsonl", "--model", "llama-3.2-1b")
    assert "tokenizer of meta-llama" in both.err
    assert "there is no such file" in both.err
    (trained / "bare").mkdir()
    for name, why in (("none", "there is no `"), ("bare", "has no tokenizer.json")):
        local = tunec("data", trained / "train.jsonl", "--model", trained / name)
        assert (local.code, why in local.err, "hf download" in local.err) == (1, True, False)
    guessed = tunec("data", trained / "train.jsonl", "--estimate")
    assert guessed.code == 0
    assert "AN ESTIMATE by characters" in guessed.out


def test_the_cache_of_the_hub_is_read(tunec, trained, folder, monkeypatch):
    snapshot = trained / "models--meta-llama--Llama-3.2-1B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        (snapshot / file.name).write_bytes(file.read_bytes())
    monkeypatch.setenv("HF_HUB_CACHE", str(trained))
    told = tunec("data", trained / "train.jsonl", "--model", "llama-3.2-1b", "--sequence", "48")
    assert told.code == 0, told.err
    assert "8 samples (messages)" in told.out
    assert "train.jsonl:3" in told.out


def test_wrong_usage(tunec, trained):
    assert tunec("data").code == 2
    assert tunec("data", trained / "train.jsonl").code == 2
    assert tunec("data", "--spec", trained / "spec.yaml", "--sequence", "3").code == 2


def test_a_file_that_is_named_twice_is_measured_once(tunec, trained):
    given = ("data", "--estimate", "--format", "json", trained / "train.jsonl")
    twice = tunec(*given, f"{trained}/./train.jsonl")
    assert twice.json == tunec(*given).json
    assert twice.err == "2 names are of 1 file: each is measured once\n"


def test_a_template_that_refuses_is_told_with_the_line(tunec, trained, folder):
    template = trained / "template.jinja"
    template.write_text("{{ raise_exception('roles must alternate') }}", "utf-8")
    told = tunec(
        *("data", trained / "train.jsonl", "--model", "m", "--tokenizer", folder),
        *("--template", template),
    )
    assert told.code == 1
    assert "line 1 of `train.jsonl` is no sample" in told.err
    assert "roles must alternate" in told.err
    template.write_text("{% if %}", "utf-8")
    told = tunec(
        *("data", trained / "train.jsonl", "--model", "m", "--tokenizer", folder),
        *("--template", template),
    )
    assert (told.code, "the chat template is no template" in told.err) == (1, True)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 9**9**9 }}",
        "{{ 'a' * 999999999 }}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    ],
    ids=["power", "product", "brackets", "loops"],
)
def test_a_template_of_a_stranger_takes_no_time_and_no_memory(tunec, trained, folder, text):
    template = trained / "template.jinja"
    template.write_text(text, "utf-8")
    told = tunec(
        *("data", trained / "train.jsonl", "--model", "m", "--tokenizer", folder),
        *("--template", template),
    )
    assert told.code == 1
    assert "Traceback" not in told.err
    assert "too large" in told.err or "cannot be compiled" in told.err


def test_a_pipe_is_no_data_file(tunec, tmp_path):
    os.mkfifo(tmp_path / "train.jsonl")
    told = tunec("data", tmp_path / "train.jsonl", "--estimate")
    assert (told.code, "it is not a regular file" in told.err) == (1, True)


@pytest.mark.parametrize("outside", ["../secret.jsonl", "link.jsonl"])
def test_a_spec_names_no_data_outside_of_its_project(tunec, trained, outside):
    (trained / "pyproject.toml").touch()
    (trained.parent / "secret.jsonl").write_text('{"text": }\n', "utf-8")
    (trained / "link.jsonl").symlink_to("../secret.jsonl")
    spec = trained / "spec.yaml"
    spec.write_text(spec.read_text("utf-8").replace("train.jsonl", outside), "utf-8")
    told = tunec("data", "--spec", spec, "--estimate")
    assert (told.code, "lies outside the project of the spec" in told.err) == (2, True)
    told = tunec("data", "--spec", spec, "--estimate", "--allow-outside")
    assert "JSON: expecting value" in told.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", b"\xff"),
        ("tokenizer_config.json", b'{"chat_template": ["a", {"name": []}]}'),
        ("tokenizer_config.json", b"[" * 100_000),
        ("chat_template.jinja", b"{{ \xff }}"),
    ],
)
def test_damaged_files_beside_a_tokenizer(tunec, trained, folder, tmp_path, name, content):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    (own / name).write_bytes(content)
    told = tunec("data", trained / "train.jsonl", "--tokenizer", own, "--model", "m")
    assert told.code in (0, 1)
    assert "Traceback" not in told.err
    assert told.code == 0 or "`" in told.err
