"""What a file is taken for, and how its reader takes it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lint_asking import lint

from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.lint import lint_texts
from tunec.targets.registry import TARGETS

COMMENTED = """{
  // the stage
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 1,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true, "check_grad_overflow": true},
  "zero_optimization": {"stage": 2},
}
"""
FLAGS = "--output_dir o --bf16 True --gradient_checkpointing True"
TRAINER = "output_dir: out\nper_device_train_batch_size: 1\nbf16: true\n"
GRPO = TRAINER + "num_generations: 1\nmax_completion_length: 256\nlearning_rate: 1.0e-6\n"
DIFFUSERS = (
    "accelerate launch train_text_to_image_lora.py --pretrained_model_name_or_path=m "
    "--train_data_dir=d --resolution=512 --train_batch_size=1 --learning_rate=1e-04 "
    "--output_dir=out\n"
)


@pytest.mark.parametrize(
    ("beside", "arguments", "severity"),
    [
        ({}, ["--from", "deepspeed"], None),
        ({}, [], "warning"),
        ({"training_args.yaml": f"{TRAINER}deepspeed: ds.json\n"}, [], "error"),
    ],
    ids=["deepspeed reads hjson", "nobody says who reads", "the trainer reads json"],
)
def test_comments_are_as_the_reader_takes_them(
    beside: dict[str, str], arguments: list[str], severity: str | None, tmp_path: Path
) -> None:
    answer = lint(tmp_path, {"ds.json": COMMENTED, **beside}, ["ds.json", *beside, *arguments])
    told = {each["severity"] for each in answer.findings if each["id"] == "E0105"}
    assert told == ({severity} if severity else set())


def test_a_file_that_its_named_reader_does_not_know_is_not_asked_for_again(tmp_path: Path) -> None:
    answer = lint(tmp_path, {"own.json": '{"foo": {}}'}, ["own.json", "--from", "deepspeed"])
    assert answer.names == ["unrecognised-file"]
    assert "that `deepspeed` reads" in answer.findings[0]["help"]


def test_deepspeed_reads_such_a_file_and_the_trainer_does_not(tmp_path: Path) -> None:
    hjson = pytest.importorskip("hjson")
    import json

    assert hjson.loads(COMMENTED)["zero_optimization"] == {"stage": 2}
    with pytest.raises(json.JSONDecodeError):
        json.loads(COMMENTED)


@pytest.mark.parametrize("name", ["hostfile", "hosts.txt", "cluster"])
def test_a_hostfile_is_known_by_its_lines(name: str, tmp_path: Path) -> None:
    text = "# rack 1\nworker-0 slots=8\n\nworker-1 slot=8\n"
    answer = lint(tmp_path, {name: text}, [name])
    assert answer.names == ["hostfile-refused"]
    (label,) = answer.findings[0]["labels"]
    assert (label["path"], label["line"]) == ("worker-1", 4)


def test_a_hostfile_that_is_not_there_is_told_unless_it_lies_elsewhere(tmp_path: Path) -> None:
    text = "deepspeed --hostfile {} train.py --output_dir out --bf16 True\n"
    (told,) = lint(tmp_path, {"t.sh": text.format("nowhere")}, ["t.sh"]).findings
    assert (told["id"], told["consequence"]) == ("missing-file", "silent")
    assert lint(tmp_path, {"t.sh": text.format("/job/hostfile")}, ["t.sh"]).findings == []
    written = "echo worker-0 slots=8 > nowhere\n" + text.format("nowhere")
    assert lint(tmp_path, {"t.sh": written}, ["t.sh"]).findings == []


def test_trainer_fields_with_those_of_trl_are_trl_s(tmp_path: Path) -> None:
    answer = lint(tmp_path, {"grpo.yaml": GRPO}, ["grpo.yaml"])
    assert answer.names == ["generations-do-not-divide"]


def test_flags_of_a_script_are_no_deepspeed_file(tmp_path: Path) -> None:
    answer = lint(tmp_path, {"train.sh": DIFFUSERS}, ["train.sh"])
    assert not [each for each in answer.findings if each["severity"] != "note"]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "accelerate.yaml",
            "mixed_precision: bf16\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n",
            "distributed-type-missing",
        ),
        ("training_args.yaml", "fp16: true\nbf16: true\n", "fp16-and-bf16"),
        ("trl.yaml", "packing: true\nattn_implementation: sdpa\n", "packing-without-varlen"),
    ],
)
def test_a_name_tells_whose_a_few_keys_are(
    name: str, text: str, found: str, tmp_path: Path
) -> None:
    assert found in lint(tmp_path, {name: text}, [name]).names


def test_json_in_a_flag_is_a_mapping_whose_place_is_not_edited(tmp_path: Path) -> None:
    """Rules see its keys; a fix within the text of a flag would not be JSON any more."""
    options = '{"use_reentrant": true, "determinsm_check": "none"}'
    line = f"torchrun --nproc_per_node 2 train.py {FLAGS} --gradient_checkpointing_kwargs"
    answer = lint(tmp_path, {"train.sh": f"{line} '{options}'\n"}, ["train.sh"])
    told = [each for each in answer.findings if each["id"] == "checkpointing-option-refused"]
    assert told[0]["labels"][0]["path"] == "gradient_checkpointing_kwargs.determinsm_check"
    assert told[0].get("fix") is None


def test_a_file_of_fsdp_s_options_is_followed(tmp_path: Path) -> None:
    files = {
        "training_args.yaml": "output_dir: o\nfsdp: full_shard auto_wrap\nfsdp_config: f.json\n",
        "f.json": '{"min_num_params": 100, "transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}',
    }
    for order in (["training_args.yaml"], ["f.json", "training_args.yaml"]):
        answer = lint(tmp_path, files, [*order, "--software", "transformers=4.51.3"])
        assert answer.names == ["fsdp-two-wrap-policies"]


@pytest.mark.parametrize(
    ("world", "names"), [("8", []), ("4", ["resume-of-another-run"])], ids=["as many", "fewer"]
)
def test_a_checkpoint_s_folder_is_looked_at(world: str, names: list[str], tmp_path: Path) -> None:
    """By `true`, the newest of output_dir; `latest` names the tag of several."""
    parts = [
        f"out/checkpoint-90/global_step{tag}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        for tag, ranks in ((80, 2), (90, 8))
        for rank in range(ranks)
    ]
    files = {
        **dict.fromkeys(parts, ""),
        "out/checkpoint-90/latest": "global_step90",
        "out/checkpoint-9/global_step9/zero_pp_rank_0_mp_rank_00_optim_states.pt": "",
        "training_args.yaml": f"{TRAINER}deepspeed: ds.json\nresume_from_checkpoint: true\n",
        "ds.json": COMMENTED.replace("  // the stage\n", "").replace("2},\n}", "2}\n}"),
    }
    answer = lint(tmp_path, files, ["training_args.yaml", "--world-size", world])
    assert [each["id"] for each in answer.findings if each["severity"] == "error"] == names


def test_a_model_that_nobody_knows_is_known_by_its_name(tmp_path: Path) -> None:
    """Its sizes are not; the rest of the run is checked."""
    files = {"training_args.yaml": TRAINER.replace("bf16", "fp16")}
    answer = lint(tmp_path, files, ["training_args.yaml", "--model", "google/t5-v9_9-xl"])
    assert "no model is called 'google/t5-v9_9-xl'" in answer.err
    assert answer.names == ["bf16-model-in-fp16"]


@pytest.mark.parametrize(
    ("reader", "command"),
    [
        ("llama-cookbook", "torchrun -m llama_cookbook.finetuning --model_name m --use_peft True"),
        ("openrlhf", "deepspeed --module openrlhf.cli.train_sft --train.seed 42"),
    ],
)
def test_of_a_trainer_that_reads_flags_the_launcher_is_not_its_own(reader, command):
    linted = lint_texts({"run.sh": command}, TARGETS.readable(), Environment(readers=(reader,)))
    assert {each.kind for each in linted.run.documents} == {"launch", reader}


def test_a_long_file_is_read_whole_where_a_program_has_it(tmp_path: Path) -> None:
    import json

    filling = {"note": "x" * (1 << 16)}
    trained = {"output_dir": "out", "per_device_train_batch_size": 1, "learning_rate": 1e-5}
    long = json.dumps({**trained, "fp16": True, "bf16": True, **filling})
    answer = lint(tmp_path, {"args.json": long}, ["."])
    told = {each["labels"][0]["line"] for each in answer.findings if each["id"] == "fp16-and-bf16"}
    assert told == {1}


def test_data_are_read_by_their_first_level_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from tunec.compiler.lints import parses

    asked: list[str] = []
    read = parses.parse_text

    def counted(name: str, *rest: object) -> object:
        asked.append(name)
        return read(name, *rest)

    monkeypatch.setattr(parses, "parse_text", counted)
    texts = {each: json.dumps([{"x": "y" * 100}] * 700) for each in ("a.json", "b.json")}
    lint_texts({**texts, "c.json": '{"x": 1}'}, TARGETS, Environment())
    assert asked == ["c.json"]
