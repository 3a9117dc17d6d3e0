"""A Python training script becomes a spec that trains the same."""

from pathlib import Path

import pytest
import yaml

from tunec.compiler.cli.arguments import build_parser
from tunec.compiler.cli.session import standard
from tunec.compiler.cli.spec_from_files import asking_of
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.to_spec import Asking, SpecResult, sources_of_files, spec_of_files
from tunec.targets.registry import TARGETS

QLORA = """\
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

bits = BitsAndBytesConfig({bits})
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen3-8B", quantization_config=bits, device_map="auto", torch_dtype=torch.bfloat16
)
data = {data}
args = SFTConfig("out", per_device_train_batch_size=2, gradient_accumulation_steps=4, bf16=True,
                 learning_rate=2e-4, max_length=1024, gradient_checkpointing=True{more})
adapter = LoraConfig(r=64, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
SFTTrainer(model=model, args=args, {given}, peft_config=adapter).train()
"""
NF4 = (
    'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, '
    "bnb_4bit_compute_dtype=torch.bfloat16"
)
WHOLE = 'load_dataset("json", data_files="train.jsonl", split="train")'
FULL = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", dtype="bfloat16")
raw = load_dataset("wikitext", "wikitext-2-raw-v1")
tokenized = raw.map(lambda each: each)
args = TrainingArguments("out", bf16=True, per_device_train_batch_size=1,
                         eval_strategy="steps", eval_steps=50)
Trainer(model, args, train_dataset=tokenized["train"], eval_dataset=tokenized["test"]).train()
"""
DPO = """\
from datasets import load_dataset
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer

args = DPOConfig(output_dir="out", beta=0.2, learning_rate=5e-6, bf16=True, max_length=1024)
data = load_dataset("trl-lib/ultrafeedback_binarized", split="train[:1000]")
DPOTrainer("Qwen/Qwen3-8B", args=args, train_dataset=data, peft_config=LoraConfig(r=8)).train()
"""


def asking(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> Asking:
    monkeypatch.chdir(folder)
    Path("train.py").write_text(text, "utf-8")
    words = ["init", "--from", "train.py", "--hardware", "a100-80g-x2", *more]
    options = build_parser("").parse_args(words)
    return asking_of(options, standard(TARGETS, "text"), None)


UNSLOTH = """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-8B"{loaded})
model = FastLanguageModel.get_peft_model(
    model, r=32, lora_alpha=16, lora_dropout=0, target_modules=["q_proj", "v_proj"]
)
data = load_dataset("yahma/alpaca-cleaned", split="train")
args = SFTConfig(output_dir="out", per_device_train_batch_size=2, max_steps=60, bf16=True)
SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=data, args=args).train()
"""


def spec_of(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> SpecResult:
    return spec_of_files([Path("train.py")], asking(text, folder, monkeypatch, *more))


def sources(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    return sources_of_files([Path("train.py")], asking(text, folder, monkeypatch))


def qlora(bits: str = NF4, data: str = WHOLE, given: str = "train_dataset=data", more: str = ""):
    return QLORA.format(bits=bits, data=data, given=given, more=more)


def read(result: SpecResult):
    assert result.ok, [each.message for each in result.diagnostics]
    return yaml.safe_load(result.text)


def test_a_quantised_base_stays_one(tmp_path, monkeypatch):
    spec = read(spec_of(qlora(), tmp_path, monkeypatch))
    assert (spec["model"], spec["targets"]) == ("Qwen/Qwen3-8B", ["trl"])
    assert spec["method"] == {"qlora": {"rank": 64, "alpha": 16, "targets": "all-linear"}}
    assert spec["data"]["train"] == "train.jsonl"
    assert spec["batch"] == {"global": 16}


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (NF4, ("nf4", True, "bf16")),
        ("load_in_4bit=True", ("fp4", False, "fp32")),
        ("load_in_4bit=True, bnb_4bit_compute_dtype='float16'", ("fp4", False, "fp16")),
        ("load_in_8bit=True", ("int8", None, None)),
    ],
)
def test_a_config_that_leaves_a_value_out_has_the_class_own(bits, expected, tmp_path, monkeypatch):
    values = sources(qlora(bits), tmp_path, monkeypatch).known.values
    assert values["quantization.format"] == expected[0]
    if expected[1] is not None:
        found = (values["quantization.double"], values["quantization.compute"])
        assert found == expected[1:]


@pytest.mark.parametrize(
    ("data", "given", "expected"),
    [
        (WHOLE, "train_dataset=data", ("train.jsonl", None)),
        ('load_dataset("org/set")', 'train_dataset=data["train"]', ("org/set", None)),
        ('load_dataset("org/set", "main")', 'train_dataset=data["a"]', ("org/set:main:a", None)),
        (
            'load_dataset("json", data_files={"train": "a.json", "test": "b.json"}).shuffle(1)',
            'train_dataset=data["train"], eval_dataset=data["test"]',
            ("a.json", "b.json"),
        ),
        (
            'load_dataset("org/set", split="train").train_test_split(0.1)',
            'train_dataset=data["train"], eval_dataset=data["test"]',
            ("org/set", None),
        ),
        ("load_dataset(NAME)", "train_dataset=data", (None, None)),
        ("make()", "train_dataset=data", (None, None)),
        (
            'load_dataset("a/a") if FAST else load_dataset("b/b")',
            "train_dataset=data",
            (None, None),
        ),
    ],
)
def test_the_data_is_what_the_trainer_is_given(data, given, expected, tmp_path, monkeypatch):
    more = ', eval_strategy="epoch"' if "eval_dataset" in given else ""
    text = qlora(data=data, given=given, more=more)
    values = sources(text, tmp_path, monkeypatch).known.values
    assert (values.get("data.train"), values.get("data.evaluation")) == expected


LOADED = 'load_dataset("json", data_files="train.jsonl", split="train")'
AGAIN = f"{LOADED}\ndata = data"


@pytest.mark.parametrize(
    ("data", "limit", "changed"),
    [
        (LOADED, (), None),
        (f"{LOADED}.select(range(500))", (500,), None),
        (f"{LOADED}.select(range(500)).map(str)", (500,), "map"),
        (f"{LOADED}.shuffle().select(range(500))", (), "shuffle and select"),
        (f"{LOADED}.select(range(MOST))", (), "select"),
        (f"{AGAIN}.select(range(500))", (), "select"),
        (f"{LOADED}.train_test_split(test_size=0.1)", (), "train_test_split"),
    ],
)
def test_a_note_names_what_code_does_with_the_data(data, limit, changed, tmp_path, monkeypatch):
    given = 'train_dataset=data["train"]' if "test_size" in data else "train_dataset=data"
    text = qlora(data=data, given=given)
    values = sources(text, tmp_path, monkeypatch).known.values
    assert (values["data.train"], values["data.limits"]) == ("train.jsonl", limit)
    result = spec_of(text, tmp_path, monkeypatch)
    notes = [each for each in result.diagnostics if "afterwards" in each.message]
    assert [each.severity for each in notes] == ["note"] * (changed is not None)
    assert [each.message.partition(": ")[2] for each in notes] == [changed] * len(notes)


def test_full_training_needs_no_option(tmp_path, monkeypatch):
    spec = read(spec_of(FULL, tmp_path, monkeypatch))
    assert (spec["method"], spec["targets"]) == ("full", ["huggingface"])
    assert spec["data"]["train"] == "wikitext:wikitext-2-raw-v1"
    assert spec["data"]["evaluation"] == "wikitext:wikitext-2-raw-v1:test"


@pytest.mark.parametrize(
    ("more", "steps"),
    [
        ("logging_steps=20", 20),
        ("logging_steps=20, eval_steps=50", 50),
        ("eval_steps=50", 50),
    ],
)
def test_evaluation_without_steps_happens_with_the_log(more, steps, tmp_path, monkeypatch):
    text = FULL.replace("eval_steps=50", more)
    assert sources(text, tmp_path, monkeypatch).known.values["schedule.evaluation_steps"] == steps


@pytest.mark.parametrize(
    ("head", "words", "expected"),
    [
        ("CausalLM", "", None),
        ("SequenceClassification", ", num_labels=3", {"sequence_classification": {"labels": 3}}),
        ("TokenClassification", "", {"token_classification": {"labels": 2}}),
    ],
)
def test_the_head_is_the_task(head, words, expected, tmp_path, monkeypatch):
    text = FULL.replace("CausalLM", head).replace('dtype="bfloat16"', f'dtype="bfloat16"{words}')
    assert read(spec_of(text, tmp_path, monkeypatch)).get("task") == expected


def test_a_head_without_a_task_is_an_error(tmp_path, monkeypatch):
    result = spec_of(FULL.replace("CausalLM", "QuestionAnswering"), tmp_path, monkeypatch)
    (fault,) = (each for each in result.diagnostics if "the head of" in each.message)
    assert (fault.id, fault.labels[0].span.line) == ("E0908", 4)


def test_a_script_that_mentions_adapters_may_make_one(tmp_path, monkeypatch):
    text = FULL.replace("raw =", "model = add_adapter(model)\nraw =")
    assert "adapter.kind" not in sources(text, tmp_path, monkeypatch).known.values


def test_preferences_keep_their_first_samples_and_the_base_as_reference(tmp_path, monkeypatch):
    spec = read(spec_of(DPO, tmp_path, monkeypatch, "--set", "adapter.targets=all-linear"))
    assert spec["objective"] == {"dpo": {"beta": 0.2}}
    assert "lora" in spec["method"]
    assert spec["targets"] == ["trl"]
    assert spec["data"]["train"] == {"path": "trl-lib/ultrafeedback_binarized", "samples": 1000}


@pytest.mark.parametrize(
    ("loaded", "method", "length"),
    [
        ("", "qlora", 2048),
        (", max_seq_length=4096, load_in_4bit=True", "qlora", 4096),
        (", load_in_4bit=False", "lora", 2048),
    ],
)
def test_unsloth_loads_by_its_own_defaults(loaded, method, length, tmp_path, monkeypatch):
    spec = read(spec_of(UNSLOTH.format(loaded=loaded), tmp_path, monkeypatch))
    adapter = {"rank": 32, "alpha": 16, "targets": ["q_proj", "v_proj"]}
    assert (spec["model"], spec["method"]) == ("unsloth/Qwen3-8B", {method: adapter})
    assert spec["data"] == {"train": "yahma/alpaca-cleaned", "sequence": length}


def test_a_note_tells_that_unsloth_loads_the_model(tmp_path, monkeypatch):
    result = spec_of(UNSLOTH.format(loaded="", adapter=""), tmp_path, monkeypatch)
    assert "loads the model by Unsloth" in " ".join(each.message for each in result.diagnostics)


def test_unsloths_adapter_has_its_own_defaults(tmp_path, monkeypatch):
    text = UNSLOTH.format(loaded="").replace("r=32, lora_alpha=16, ", "")
    values = sources(text, tmp_path, monkeypatch).known.values
    assert (values["adapter.rank"], values["adapter.alpha"]) == (16, 16)


@pytest.mark.parametrize("text", [qlora(), FULL, DPO], ids=["qlora", "full", "dpo"])
def test_nothing_of_a_call_is_dropped_silently(text, tmp_path, monkeypatch):
    result = spec_of(text, tmp_path, monkeypatch)
    told = {each.labels[0].path for each in result.diagnostics if each.labels}
    reads = sources(text, tmp_path, monkeypatch).reads
    assert reads
    assert {each.key for each in reads if each.fate == "left"} <= told


@pytest.mark.parametrize(("more", "is_told"), [("", False), (", **options", True)])
def test_a_call_with_unknown_arguments_leaves_the_rest_open(
    more, is_told, tunec, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = qlora().replace('device_map="auto"', f'device_map="auto"{more}')
    Path("train.py").write_text(text, "utf-8")
    result = tunec("translate", "train.py", "--to", "axolotl", "--model", "Qwen/Qwen3-8B")
    assert ("no call in train.py" in result.err) is is_told
    assert (result.code == 0) is not is_told
