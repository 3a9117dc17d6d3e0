"""`tunec resume`: folders by their names, the way on, and what real runs did (`real_runs.json`)."""

import json
import os
import pickle
import shlex
import zipfile
from collections import OrderedDict
from itertools import pairwise
from math import prod
from pathlib import Path

import pytest

from tunec.compiler.resume.folder import NoCheckpoint, look
from tunec.compiler.resume.pickles import StubObject, objects
from tunec.compiler.resume.ways import Goal, way_of

RUNS = json.loads((Path(__file__).parent / "real_runs.json").read_text("utf-8"))
SPEC = """
tunec: 1
model: llama-3.2-1b
method: lora
data: {train: train.jsonl, samples: 6400, sequence: 512}
hardware: a100-80g-x4
engine: ddp
"""


class Arguments:
    """Stands for TrainingArguments."""


def torch_file(path: Path, content) -> None:
    """A file as `torch.save` writes it, without tensors."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(content, 2))


def made(folder: Path, names, *, step=500, most=2000) -> Path:
    """A folder with files of these names, and the Trainer's own."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    state = {"global_step": step, "max_steps": most, "epoch": 0.25, "num_train_epochs": 1}
    log = [{"step": step, "learning_rate": 1e-4}, {"eval_loss": 1.0}]
    content = {**state, "train_batch_size": 2, "log_history": log}
    (folder / "trainer_state.json").write_text(json.dumps(content), "utf-8")
    arguments = Arguments()
    vars(arguments).update(gradient_accumulation_steps=4, per_device_train_batch_size=2, seed=7)
    torch_file(folder / "training_args.bin", arguments)
    return folder


def with_shapes(file: Path, shapes) -> None:
    """A file of safetensors with its header alone."""
    header = json.dumps({n: {"dtype": "BF16", "shape": shape} for n, shape in shapes.items()})
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode())


ZERO_2 = [
    "latest",
    "zero_to_fp32.py",
    *(f"rng_state_{rank}.pth" for rank in range(8)),
    *(f"global_step500/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(8)),
]
PLAIN = ["optimizer.pt", "scheduler.pt", *(f"rng_state_{rank}.pth" for rank in range(8))]
SHARDED = [
    "scheduler.pt",
    *("pytorch_model_fsdp_0/.metadata", "optimizer_0/.metadata"),
    *(f"pytorch_model_fsdp_0/__{rank}_0.distcp" for rank in range(8)),
]


def zero(folder: Path) -> Path:
    found = made(folder, ZERO_2)
    said = {"ds_version": "0.19.8", "dp_world_size": 8, "module": OrderedDict(a=Arguments())}
    torch_file(folder / "global_step500" / "mp_rank_00_model_states.pt", said)
    (folder / "latest").write_text("global_step500", "utf-8")
    return found


def test_zero_is_known_by_its_files(tmp_path):
    found = look(zero(tmp_path))
    assert (found.kind, found.tag, found.stage) == ("deepspeed", "global_step500", 2)
    assert (found.world, found.release) == (8, "deepspeed 0.19.8")
    assert (found.settings.accumulation, found.settings.seed) == (4, 7)
    assert found.progress.rate == 1e-4
    ranks = (each for each in ZERO_2 if "optim" in each)
    third = [each.replace("optim", "model").replace("bf16_", "") for each in ranks]
    assert look(made(tmp_path, third)).stage == 3


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (PLAIN, "trainer"),
        (SHARDED, "fsdp-sharded"),
        (["pytorch_model_fsdp.bin", "optimizer.bin", "scheduler.pt"], "fsdp-full"),
        (["global_step5_universal/zero/a.weight/fp32.pt"], "universal"),
    ],
)
def test_other_kinds(tmp_path, names, kind):
    assert look(made(tmp_path, names)).kind == kind


def test_accelerate_and_bare_weights(tmp_path):
    for name in ("optimizer.bin", "random_states_0.pkl", "random_states_1.pkl"):
        (tmp_path / name).touch()
    found = look(tmp_path)
    assert (found.kind, found.world, found.progress) == ("accelerate", 2, None)
    bare = tmp_path / "bare"
    bare.mkdir()
    header = json.dumps({"a": {"dtype": "BF16", "shape": [3, 5], "data_offsets": [0, 30]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(30)
    (bare / "adapter_model.safetensors").write_bytes(content)
    (bare / "adapter_config.json").write_text('{"r": 8, "peft_type": "LORA"}', "utf-8")
    found = look(bare)
    assert (found.kind, found.weights.parameters, found.adapter["r"]) == ("weights", 15, 8)


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(NoCheckpoint, match="does not exist"):
        look(tmp_path / "none")
    with pytest.raises(NoCheckpoint, match="holds no checkpoint"):
        look(tmp_path)
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    with pytest.raises(NoCheckpoint) as refused:
        look(tmp_path)
    assert refused.value.help.endswith("checkpoint-10")
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(NoCheckpoint, match="has no header"):
        look(tmp_path)


class Bomb:
    """Runs a command where it is unpickled as usual."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def test_nothing_of_a_pickle_is_run(tmp_path):
    torch_file(tmp_path / "bomb.pt", {"steps": 3, "bomb": Bomb(tmp_path / "ran")})
    found = objects(tmp_path / "bomb.pt")
    assert found["steps"] == 3
    assert isinstance(found["bomb"], StubObject)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "torn.pt").write_bytes(b"PK torn")
    assert objects(tmp_path / "torn.pt") is None


@pytest.mark.parametrize(("names", "family"), [(PLAIN, "plain"), (SHARDED, "fsdp")])
def test_the_trainer_begins_anew_without_a_schedule(tmp_path, names, family):
    found = look(made(tmp_path, [each for each in names if each != "scheduler.pt"]))
    way = way_of(found, Goal(family, 8, None))
    assert way.outcome == "weights alone"
    assert "scheduler.pt" in way.why


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["what"])
def test_what_real_runs_did(run, tmp_path):
    """Losses are as without a stop where it is said that the state goes on; else not."""
    for name in (each for each in run["files"] if not each.endswith(".safetensors")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            "global_step2_universal" if "latest_u" in name else "", "utf-8"
        )
    if "trainer" in run["what"]:
        made(tmp_path, [])
    way = way_of(look(tmp_path), Goal(run["family"], run["world"], run["stage"]))
    goes_on = run.get("error") is None and run["after"] == pytest.approx(run["expected"], rel=1e-5)
    assert (way.outcome == "same state") == goes_on, run


def test_the_plan_keeps_the_batch_and_tells_of_the_rate(tunec, tmp_path):
    folder = made(tmp_path / "checkpoint-500", PLAIN, step=50, most=100)
    (tmp_path / "spec.yaml").write_text(SPEC, "utf-8")
    again = ("resume", folder, "--spec", tmp_path / "spec.yaml")
    told = tunec(*again)
    assert told.code == 0, told.err
    assert "continues with the same optimizer state" in told.out
    assert "batch   64 samples a step, as before" in told.out
    assert "along the same curve at step 50 of 100 after 0.0001" in told.out
    assert "random states of 8 ranks do not fit 4" in told.out
    with_shapes(folder / "model.safetensors", {"a": [3, 5]})
    assert "the folder has 15 parameters, and the plan's model 1,2" in tunec(*again).out
    longer = tunec(*again, "--set", "train.epochs=2").out
    assert "step 50 is 25% of the way and not 50%; set train.steps=100 to keep it" in longer
    other = tunec(*again, "--set", "batch.global=32").out
    assert "32 samples a step, and 64 before" in other
    assert "samples are seen twice or left out" in other


@pytest.mark.parametrize(
    ("target", "epoch", "repeats"),
    [
        ("llamafactory", 1.5, True),
        ("llamafactory", 0.5, False),
        ("llamafactory", 1.0, False),
        ("axolotl", 1.5, False),
        ("trl", 1.5, False),
    ],
)
def test_releases_that_deal_a_later_epoch_as_the_first_are_named(
    tunec, tmp_path, target, epoch, repeats
):
    """As LLaMA-Factory 0.9.5 did: a run resumed at 1.5 epochs had other losses from there on."""
    folder = made(tmp_path / "checkpoint-50", PLAIN, step=50, most=100)
    state = json.loads((folder / "trainer_state.json").read_text("utf-8"))
    (folder / "trainer_state.json").write_text(json.dumps({**state, "epoch": epoch}), "utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, "utf-8")
    told = tunec("resume", folder, "--spec", tmp_path / "spec.yaml", "--target", target)
    assert told.code == 0, told.err
    named = "transformers 4.57.6 beside accelerate 1.11.0 then deals the rest of this epoch"
    assert (named in told.out) is repeats
    assert ("sees the samples that it would have seen" in told.out) is not repeats


def test_a_tied_head_that_is_saved_too_is_no_other_model(tunec, tmp_path):
    """What transformers 5.23.0 and DeepSpeed's ZeRO 1 leave of a tied model."""
    folder = made(tmp_path / "checkpoint-500", PLAIN)
    (tmp_path / "spec.yaml").write_text(SPEC.replace("lora", "full"), "utf-8")
    head = [128256, 2048]
    of_the_model = {"model.embed_tokens.weight": head, "model.layers": [1_235_814_400 - prod(head)]}
    for saved in (of_the_model, {**of_the_model, "lm_head.weight": head}):
        with_shapes(folder / "model.safetensors", saved)
        said = tunec("resume", folder, "--spec", tmp_path / "spec.yaml")
        assert said.code == 0, said.err
        assert "another model" not in said.out


def test_a_conversion_is_told_with_its_commands(tunec, tmp_path):
    folder = zero(tmp_path / "checkpoint-500")
    told = tunec("resume", folder, "--hardware", "a100-80g-x4", "--format", "json")
    found = json.loads(told.out)
    assert found["outcome"] == "converted"
    assert "ds_to_universal" in found["commands"][0]
    assert found["checkpoint"]["global_batch"] == 64
    same = json.loads(tunec("resume", folder, "--hardware", "a100-80g-x8", "--format", "json").out)
    assert (same["outcome"], same["commands"], same["lost"]) == ("same state", [], [])


@pytest.mark.parametrize(
    ("folder", "engine", "sets"),
    [
        (
            zero,
            "deepspeed",
            ["batch.global=64", "extra.deepspeed={checkpoint: {load_universal: true}}"],
        ),
        (
            lambda path: made(path, SHARDED),
            "fsdp",
            ["batch.global=64", "pin.fsdp.state_dict=sharded"],
        ),
    ],
)
def test_the_commands_write_the_bundle_that_goes_on(tunec, tmp_path, folder, engine, sets):
    """What is printed is run as it is: its files have what the loader asks of them."""
    found, spec = folder(tmp_path / "checkpoint-500"), tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace("ddp", engine), "utf-8")
    again = ("--spec", spec, "--hardware", "a100-80g-x2", "--target", "trl", "--format", "json")
    told = json.loads(tunec("resume", found, *again).out)
    compiling, starting = map(shlex.split, told["commands"][-2:])
    assert [each for flag, each in pairwise(compiling) if flag == "--set"] == sets
    assert starting == ["bash", "out/run.sh", f"--resume_from_checkpoint={found}"]
    assert not told["settings"]
    assert tunec(*compiling[1:-1], tmp_path / "out").code == 0
    files = "".join(each.read_text("utf-8") for each in (tmp_path / "out").rglob("*.[jy]*"))
    assert {"deepspeed": '"load_universal": true', "fsdp": "SHARDED_STATE_DICT"}[engine] in files


def test_a_script_of_the_user_is_told_the_checkpoint(tunec, tmp_path):
    folder, spec = made(tmp_path / "checkpoint-500", PLAIN), tmp_path / "spec.yaml"
    spec.write_text(f"{SPEC}run: {{script: train.py}}\ntargets: [huggingface]\n", "utf-8")
    told = json.loads(tunec("resume", folder, "--spec", spec, "--format", "json").out)
    assert told["commands"] == []
    assert told["settings"] == [f'in the script: train(resume_from_checkpoint="{folder}")']


def test_a_finished_run_is_told_to_be_one(tunec, tmp_path):
    folder, spec = made(tmp_path / "out", PLAIN, step=100, most=100), tmp_path / "spec.yaml"
    spec.write_text(SPEC, "utf-8")
    for given in (("--spec", spec), ("--hardware", "a100-80g-x4")):
        assert "all 100 steps are done" in tunec("resume", folder, *given).out
    assert (
        "is 50% of the way"
        in tunec("resume", folder, "--spec", spec, "--set", "train.epochs=2").out
    )


def test_weights_beside_checkpoints_name_the_last_one(tunec, tmp_path):
    with_shapes(tmp_path / "model.safetensors", {"a": [3, 5]})
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    told = tunec("resume", tmp_path, "--hardware", "a100-80g-x4").out
    assert f"inside  {tmp_path / 'checkpoint-10'} has the state" in told


def test_an_adapter_is_merged_before_it_is_a_model(tunec, tmp_path):
    with_shapes(tmp_path / "adapter_model.safetensors", {"a": [3, 5]})
    settings = {"r": 8, "peft_type": "LORA", "base_model_name_or_path": "org/base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    told = tunec("resume", tmp_path, "--hardware", "a100-80g-x4").out
    assert f"set   model: a folder with {tmp_path} merged into org/base (peft's `merge_" in told


def test_wrong_usage_and_wrong_names(tunec, tmp_path):
    folder = made(tmp_path / "checkpoint-500", PLAIN)
    assert tunec("resume", folder).code == 2
    assert tunec("resume", folder, "--hardware", "a100-80g-x4", "--set", "a=b").code == 2
    assert tunec("resume", folder, "--hardware", "nothing").code == 1
    assert tunec("resume", tmp_path, "--hardware", "a100-80g-x4").code == 1


def test_a_folder_that_is_gone_hides_no_other_fault(tunec, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace("engine: ddp", "engin: ddp"), "utf-8")
    gone, unknown = tmp_path / "gone", ("--hardware", "nothing-x8")
    alone = json.loads(tunec("resume", gone, *unknown, "--format", "json").out)
    assert [each["id"] for each in alone["diagnostics"]] == ["E0201", "E0305"]
    found = tunec("resume", gone, *unknown, "--spec", spec, "--set", "batch.effective=8")
    assert found.code == 1
    assert {line for line in found.err.splitlines() if line.startswith("error")} == {
        f"error[E0201]: `{gone}` does not exist",
        "error[E0301]: `engin` is not a field of a spec",
        "error[E0301]: `effective` is not a field of `batch`",
        "error[E0305]: no hardware is called `nothing-x8`",
    }


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("latest", b"\xff\xfe", ""),
        ("trainer_state.json", b"[" * 100_000, "is not JSON"),
        ("trainer_state.json", b'{"global_step": Infinity, "max_steps": NaN}', ""),
        ("trainer_state.json", b'{"global_step": 5, "max_steps": ' + b"9" * 400 + b"}", ""),
        ("a.safetensors", b'\x11\0\0\0\0\0\0\0{"a": {"shape": 3}}', ""),
        ("a.safetensors", b'\x18\0\0\0\0\0\0\0{"a": {"shape": ["x"]}}', "of the shape"),
        ("a.safetensors", b"\0\0\1\0\0\0\0\0" + b"[" * 65_536, "no header of safetensors"),
    ],
)
def test_damaged_files_of_a_folder_are_told(tunec, tmp_path, name, content, says):
    folder = zero(tmp_path / "old") if name == "latest" else made(tmp_path / "old", PLAIN)
    (folder / name).write_bytes(content)
    done = tunec("resume", folder, "--hardware", "a100-80g-x4")
    assert "Traceback" not in done.err
    assert done.code in (0, 1, 2)
    assert says in done.err
