"""TRL's own scripts, started in the directory of the bundle, load the data that a spec names.

Each run trains a model of two layers on the CPU, and evaluates it on the data for that. The spec
pins fp32 without TF32, which no CPU has; nothing else of the files differs from any other run's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.sets import choose

HERE = "1.16.0"
ROWS = {
    "text": lambda i: {"text": f"hello {i} world"},
    "completion": lambda i: {"prompt": f"question {i} ", "completion": f"answer {i}"},
    "messages": lambda i: {"messages": [*turn("user", i), *turn("assistant", i)]},
    "pairs": lambda i: {"prompt": f"question {i} ", "chosen": f"answer {i}", "rejected": "no"},
    "conversations": lambda i: {
        "prompt": turn("user", i),
        "chosen": turn("assistant", i),
        "rejected": turn("assistant", "no"),
    },
    "prompts": lambda i: {"prompt": f"question {i} "},
}
ROWS |= {"judged": ROWS["pairs"], "judged-talk": ROWS["conversations"]}
METHODS = {
    **dict.fromkeys(("pairs", "conversations"), "dpo"),
    **dict.fromkeys(("judged", "judged-talk"), "reward"),
    "prompts": "grpo",
}
GRPO = "objective: {grpo: {rewards: [rewards.shorter], samples: 2, completion: 8}}\n"
OBJECTIVES = {"sft": "", "dpo": "objective: dpo\n", "grpo": GRPO, "reward": "objective: reward\n"}
REWARD = (
    "def shorter(completions, **_):\n    return [-float(len(str(each))) for each in completions]\n"
)
OLD = {
    "0.8.6": ("text",),
    "0.12.2": ("text", "pairs"),
    "0.17.0": ("text", "messages", "pairs"),
    "0.27.2": ("judged",),
    "1.3.0": ("messages", "judged-talk"),
    "1.9.2": ("judged",),
}
"""Older releases with what each is given. 0.8 has no file for DPO, and texts need a field named."""
EXTRA = {"0.8.6": "extra: {trl: {dataset_text_field: text}}\n"}
SPEC = """\
tunec: 1
model: {{path: {root}/model, config: {root}/model/config.json, stored_dtype: fp32}}
method: lora
data: {{train: {train}, {evaluation}samples: {samples}, sequence: 64{data}}}
hardware: a100-80g-x1
batch: {{global: 4}}
train: {{report_to: []}}
precision: fp32
attention: eager
pin: {{precision.tf32: false, batch.micro: 4}}
targets: [trl@{version}]
"""


def turn(role, content):
    return [{"role": role, "content": f"{content}"}]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A directory with a model of two layers, a tokenizer of words, and files of each form."""
    made = tmp_path_factory.mktemp("data")
    _model(made / "model")
    for form, row in ROWS.items():
        for split, count in (("train", 24), ("dev", 6)):
            lines = (json.dumps(row(number)) for number in range(count))
            (made / f"{form}.{split}.jsonl").write_text("\n".join(lines) + "\n")
    return made


def _model(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<unk>", "<s>", "</s>", "<pad>"]
    words = [
        *special,
        *["hello", "world", "question", "answer", "no", "user", "assistant"],
        *map(str, range(99)),
    ]
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **dict(zip(("unk_token", "bos_token", "eos_token", "pad_token"), special, strict=True)),
    )
    fast.save_pretrained(folder)
    said = json.loads((folder / "tokenizer_config.json").read_text())
    template = "{% for m in messages %}<s> {{ m['role'] }} {{ m['content'] }} </s> {% endfor %}"
    said |= {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=256,
        )
    ).save_pretrained(folder)


def compiled(root, folder, form, version=HERE, train=None, evaluation=None, samples=24, data=""):
    """The bundle of a spec that names data, in a folder of its own."""
    train = train or f"../{form}.train.jsonl"
    evaluation = f"../{form}.dev.jsonl" if evaluation is None else evaluation
    told = f"evaluation: {evaluation}, " if evaluation else ""
    said = {"train": train, "evaluation": told, "samples": samples, "data": data}
    spec = SPEC.format(root=root, version=version, **said)
    bundle = root / folder
    bundle.mkdir()
    objective = OBJECTIVES[METHODS.get(form, "sft")]
    (bundle / "spec.yaml").write_text(spec + objective + EXTRA.get(version, ""))
    _compile(bundle)
    (bundle / "rewards.py").write_text(REWARD)
    return bundle


def run(root, folder, form, version=HERE, train=None, evaluation=None, samples=24):
    """Compile, start the release's own script in the directory of its file; return its log."""
    bundle = compiled(root, folder, form, version, train, evaluation, samples)
    log = _start(bundle, METHODS.get(form, "sft"), version)
    saved = json.loads(
        next((bundle / "output").glob("checkpoint-*/trainer_state.json")).read_text()
    )
    return saved["log_history"], log


def _compile(bundle):
    command = [sys.executable, "-m", "tunec", "compile", "spec.yaml", "--allow-outside", "-o", "."]
    subprocess.run(command, cwd=bundle, check=True, capture_output=True, text=True)


def _start(bundle, method, version):
    python = sys.executable
    if version != HERE:
        python = str(prepare(choose("trl", version).requirements).python)
    find = "import os, trl; print(os.path.dirname(trl.__file__))"
    package = Path(
        subprocess.run([python, "-c", find], check=True, capture_output=True, text=True)
        .stdout.strip()
        .splitlines()[-1]
    )
    places = (package / part / f"{method}.py" for part in ("scripts", "commands/scripts"))
    script = next(place for place in places if place.exists())
    ran = subprocess.run(
        [python, script, "--config", f"trl/{method}.yaml"],
        cwd=bundle,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRL_USE_RICH": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stderr


def evaluated(history):
    return [each["eval_loss"] for each in history if "eval_loss" in each]


def trained(history):
    return max(each["step"] for each in history)


@pytest.mark.parametrize("form", ["messages", "pairs", "prompts"])
def test_files_are_trained_on_and_evaluated_on(root, form):
    history, _ = run(root, form, form)
    assert evaluated(history)
    assert trained(history) >= 6


@pytest.mark.parametrize(
    ("form", "data", "asked", "answer"),
    [
        ("messages", "chat_template: plain", "<s>", "0"),
        ("completion", "format: prompt-completion", "question 0", "answer 0"),
    ],
)
@pytest.mark.parametrize("tokens", ["answers", "all"])
def test_the_loss_is_on_the_tokens_that_the_spec_names(
    root, monkeypatch, form, data, asked, answer, tokens
):
    """The labels that the trainer itself makes, with the arguments of the emitted file."""
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

    data = f", {data}, loss_on: {tokens}"
    bundle = compiled(root, f"{form}-{tokens}", form, evaluation="", data=data)
    monkeypatch.chdir(bundle)
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    _, arguments, model = parser.parse_args_and_config(["--config", "trl/sft.yaml"])
    records = load_dataset("json", data_files=str(root / f"{form}.train.jsonl"), split="train")
    trainer = SFTTrainer(model.model_name_or_path, arguments, train_dataset=records)
    labels = [each for each in trainer.train_dataset[0]["labels"] if each != -100]
    words = AutoTokenizer.from_pretrained(root / "model").decode(labels)
    assert f"{answer} </s>" in words
    assert (asked in words) is (tokens == "all")


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["text", "completion", "conversations", "judged", "judged-talk"])
def test_every_form_is_trained_on_and_evaluated_on(root, form):
    history, _ = run(root, form, form)
    assert evaluated(history)
    assert trained(history) >= 6


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("version", "form"), [(version, form) for version, forms in OLD.items() for form in forms]
)
def test_older_releases_load_the_card(root, version, form):
    history, _ = run(root, f"{form}-{version}", form, version)
    assert evaluated(history)


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["0.8.6", HERE])
def test_nothing_is_evaluated_unasked(root, version):
    """Releases before 0.12 look a split to evaluate on up even then."""
    history, _ = run(root, f"alone-{version}", "text", version, evaluation="")
    assert not evaluated(history)
    assert trained(history) == 6


@pytest.mark.nightly
def test_a_directory_is_loaded_by_its_path(root):
    """The files of its splits are told by their names, as `datasets` has it."""
    folder = root / "texts"
    folder.mkdir()
    for split in ("train", "test"):
        lines = (json.dumps(ROWS["text"](number)) for number in range(24))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    history, _ = run(root, "directory", "text", train="../texts", evaluation="../texts")
    assert evaluated(history)


SEVERAL = "[../text.train.jsonl, {path: ../text.dev.jsonl, times: 3}]"
"""24 samples, and 6 samples three times."""
MANY = 24 + 3 * 6


def rows_of(root, split):
    lines = (root / f"text.{split}.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("evaluation", ["", "../text.dev.jsonl"])
def test_datasets_reads_every_file_of_a_card_as_often_as_it_is_listed(
    root, tmp_path, evaluation, monkeypatch
):
    from datasets import load_dataset

    name = f"card-{bool(evaluation)}"
    bundle = compiled(root, name, "text", train=SEVERAL, evaluation=evaluation, samples=MANY)
    monkeypatch.chdir(bundle)
    found = load_dataset("trl/dataset", cache_dir=str(tmp_path))
    assert found["train"]["text"] == rows_of(root, "train") + 3 * rows_of(root, "dev")
    assert set(found) == ({"train", "test"} if evaluation else {"train"})
    if evaluation:
        assert found["test"]["text"] == rows_of(root, "dev")


def test_trl_joins_files_and_directories(root, tmp_path, monkeypatch):
    """What one card cannot name stands under `datasets:`, which TRL loads one by one."""
    from trl import DatasetMixtureConfig, TrlParser, get_dataset

    (root / "folder").mkdir()
    (root / "folder/train.jsonl").write_text('{"text": "of a directory"}\n')
    train = "[../text.train.jsonl, {path: ../folder, times: 2}]"
    bundle = compiled(root, "mixed", "text", train=train, evaluation="", samples=26)
    assert not (bundle / "trl/dataset").exists()
    monkeypatch.chdir(bundle)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    parser = TrlParser(DatasetMixtureConfig)
    command = ["--config", "trl/sft.yaml"]
    mixture = parser.parse_args_and_config(command, fail_with_unknown_args=False)[0]
    found = get_dataset(mixture)
    assert found["train"]["text"] == [*rows_of(root, "train"), *2 * ["of a directory"]]


def test_datasets_does_not_join_a_table_with_other_files(tmp_path):
    """Why a .csv stands beside no .json: TRL joins them by this very function."""
    from datasets import concatenate_datasets, load_dataset

    (tmp_path / "a.csv").write_text("text\nof a table\n")
    (tmp_path / "a.jsonl").write_text('{"text": "of a line"}\n')
    parts = [
        load_dataset(kind, data_files=str(tmp_path / name), split="train", cache_dir=str(tmp_path))
        for kind, name in (("csv", "a.csv"), ("json", "a.jsonl"))
    ]
    with pytest.raises(ValueError, match="can't be aligned"):
        concatenate_datasets(parts)


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["0.8.6", "0.12.2", "0.17.0", HERE])
def test_an_epoch_has_the_samples_of_every_file(root, version):
    """Batches of 4: as many steps as the samples with their repeats fill."""
    history, _ = run(
        root, f"several-{version}", "text", version, SEVERAL, "../text.dev.jsonl", MANY
    )
    assert trained(history) == -(-MANY // 4)
