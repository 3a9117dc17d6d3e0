"""Bundles of targets and of their combinations: one entry, and every name in them holds."""

import itertools
import json
import os
import shlex
import subprocess
import sys

import pytest
import yaml

import tunec
from tunec.targets.registry import TARGETS

SPEC = {
    "tunec": 1,
    "model": "llama-3.1-8b-instruct",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 10_000, "sequence": 2048},
    "hardware": "a100-80g-x8",
}
DIFFUSION = {
    **SPEC,
    "model": "sdxl-base-1.0",
    "data": {"train": "images", "samples": 1000, "resolution": 1024},
}
SAMSUM = {
    "data": {"train": "samsum", "samples": 10_000, "sequence": 2048},
    "software": {"accelerate": "1.12"},
}
NARROW = {"lora": {"targets": ["q_proj", "v_proj"]}}
MINE = {"script": "train.py", "arguments": ["huggingface/training_args.yaml", "rows.csv", "--fast"]}
LAUNCHERS = ("torchrun", "deepspeed", "accelerate")
CLUSTERS = {"slurm": "sbatch", "skypilot": "sky", "kubeflow": "kubectl"}


def named_files(values) -> set[str]:
    """Every text in a document that ends like one of the files that targets write."""
    if isinstance(values, dict):
        return set().union(*map(named_files, values.values()))
    if isinstance(values, list):
        return set().union(*map(named_files, values))
    is_file = isinstance(values, str) and "\n" not in values and values.endswith((".json", ".yaml"))
    return {values} if is_file else set()


def names_in(written) -> dict[str, set[str]]:
    """Which files each document of a bundle names."""
    return {
        f"{target}/{each.name}": named_files(dict(each.values))
        for target, artifacts in written.compiled.artifacts.items()
        for each in artifacts
    }


def data_file(written):
    """The file of samples that the card of TRL's data set names, relative to the card."""
    card = yaml.safe_load(written.text("trl/dataset/README.md").split("---\n")[1])
    (file,) = card["configs"][0]["data_files"]
    return (written.root / "trl/dataset" / file["path"]).resolve()


@pytest.mark.parametrize(
    ("engine", "launcher"),
    [*itertools.product(("ddp", "deepspeed"), LAUNCHERS), ("fsdp", "accelerate")],
)
@pytest.mark.parametrize("targets", [("trl",), ("trl", "launch"), ("launch", "accelerate", "trl")])
def test_trl_is_started_with_its_file(write, tmp_path, engine, launcher, targets):
    if (engine, launcher) == ("ddp", "deepspeed") or ("accelerate" in targets) > (
        launcher == "accelerate"
    ):
        pytest.skip("the launcher is of another engine, or of another target")
    written = write({**SPEC, "engine": engine, "launcher": launcher}, *targets)
    called = written.start("--seed", "7 or 8", folder=tmp_path)
    assert (called.program, called.folder) == (launcher, written.root)
    assert called.words[-5:] == ["trl.scripts.sft", "--config", "trl/sft.yaml", "--seed", "7 or 8"]
    assert {"-m", "--module"} & set(called.words)
    sft = yaml.safe_load(written.text("trl/sft.yaml"))
    assert sft["dataset_name"] == "trl/dataset"
    assert data_file(written) == tmp_path / "home/train.jsonl"
    assert sft["output_dir"] == "output"
    assert sft.get("deepspeed") == ("trl/ds_config.json" if engine == "deepspeed" else None)
    for file, names in names_in(written).items():
        assert all(called.sees(name) for name in names), (file, names)
    for word in called.words:
        option, _, value = word.partition("=")
        assert option != "--config_file" or called.sees(value)


@pytest.mark.parametrize("method", ["dpo", "grpo"])
def test_each_method_has_its_script(write, method):
    objective = {"dpo": "dpo", "grpo": {"grpo": {"rewards": ["accuracy_reward"]}}}[method]
    called = write({**SPEC, "objective": objective}, "trl").start()
    assert called.words[-3:] == [f"trl.scripts.{method}", "--config", f"trl/{method}.yaml"]


@pytest.mark.parametrize(
    ("release", "module"),
    [
        ("0.12", "trl.commands.scripts.sft"),
        ("0.13", "trl.scripts.sft"),
        ("1.16", "trl.scripts.sft"),
    ],
)
def test_the_script_is_where_the_release_has_it(release, module):
    compiled = tunec.compile({**SPEC, "engine": "ddp"}, targets=[f"trl@{release}"])
    assert compiled.planned.plan.launch.script == f"{module} --config trl/sft.yaml"
    winner = compiled.planned.ledger.winner("launch.script")
    assert (winner.author, winner.value) == ("target", compiled.planned.plan.launch.script)


def test_a_script_of_the_users_own_wins(write):
    written = write({**SPEC, "run": MINE, "launcher": "torchrun"}, "trl", "huggingface")
    called = written.start()
    script = ["../train.py", "huggingface/training_args.yaml", "../rows.csv", "--fast"]
    assert called.words[-4:] == script
    assert called.sees(script[1])


def test_a_module_of_the_users_own_is_a_module(write):
    run = {"script": "mine.train", "arguments": ["trl-lib/Capybara", "https://a.example/b.json"]}
    called = write({**SPEC, "run": run, "launcher": "torchrun"}, "huggingface").start()
    assert called.words[-4:] == ["-m", run["script"], *run["arguments"]]


def test_words_reach_the_script_as_they_are(write):
    words = ["it's", 'a "b"', "$HOME `id` $(id)", "a\\b", "*", "ü", "--x=1 2", ""]
    run = {"script": "my train.py", "arguments": words}
    called = write({**SPEC, "run": run, "launcher": "torchrun"}, "huggingface").start("a b", "'")
    assert called.words[-11:] == ["../my train.py", *words, "a b", "'"]


@pytest.mark.parametrize("below", ["it's out", "a/b c/d", "-x"])
def test_a_bundle_may_lie_in_any_directory(write, tmp_path, below):
    written = write(SPEC, "trl", below=below)
    called = written.start(folder=tmp_path)
    assert called.folder == written.root
    assert data_file(written) == tmp_path / "home/train.jsonl"


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_cluster_is_handed_the_run(write, cluster, launcher):
    spec = {**SPEC, "engine": "deepspeed", "launcher": launcher, "job": {"volume": "mine"}}
    written = write(spec, "trl", "launch", cluster)
    called = written.start("--more")
    assert called.program == CLUSTERS[cluster]
    *_, file, more = called.words
    assert more == "--more"
    assert called.sees(file)
    text = written.text(file)
    assert "trl.scripts.sft --config trl/sft.yaml" in text
    if launcher == "accelerate":
        assert f"--config_file={cluster}/accelerate.yaml" in text
        assert called.sees(f"{cluster}/accelerate.yaml")


def test_a_trainer_that_starts_itself_needs_no_launcher(write):
    spec = {
        **SPEC,
        "hardware": "a100-80g-x1",
        "data": {**SPEC["data"], "train": "samsum", "packing": True},
        "train": {"schedule": "constant", "warmup": 0, "epochs": 1},
    }
    written = write(spec, "llama-cookbook")
    assert "launch" not in written.compiled.artifacts
    called = written.start()
    assert called.program == "python"
    assert called.words[:2] == ["-m", "llama_cookbook.finetuning"]
    assert called.words[called.words.index("--output_dir") + 1] == "output"


def test_simpletuner_works_in_its_own_folder(write):
    written = write(DIFFUSION, "simpletuner")
    called = written.start()
    assert (called.program, called.words) == ("simpletuner", ["train"])
    assert called.folder == written.root / "simpletuner"
    config = json.loads(written.text("simpletuner/config/config.json"))
    assert called.sees(config["data_backend_config"])
    assert config["output_dir"] == "../output"
    data = json.loads(written.text("simpletuner/config/multidatabackend.json"))
    assert data[0]["instance_data_dir"] == "../../images"


@pytest.mark.parametrize("other", ["launch", "slurm"])
def test_simpletuner_is_started_by_others_in_its_own_folder(write, other):
    """Its loader looks for `config/` where it works, whoever started it."""
    written = write({**DIFFUSION, "job": {"time": "4h"}}, "simpletuner", other)
    assert written.compiled.plans[other].launch.script == "simpletuner/start.py"
    assert written.start().program == ("sbatch" if other == "slurm" else "simpletuner")
    theirs = written.root / "packages" / "simpletuner"
    theirs.mkdir(parents=True)
    (theirs / "__init__.py").touch()
    (theirs / "train.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:])", "utf-8")
    done = subprocess.run(
        [sys.executable, "simpletuner/start.py", "--a=b"],
        cwd=written.root,
        env={**os.environ, "PYTHONPATH": str(theirs.parent)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{written.root / 'simpletuner'} ['--a=b']\n", done.stderr


def test_others_can_start_every_trainer():
    """No launcher is left with a script that nobody wrote."""
    trainers = [each for each in TARGETS.values() if any(not s.needs_script for s in each.starts)]
    assert {"glm4", "openrlhf", "simpletuner"} <= {each.name for each in trainers}
    lacking = [each.name for each in trainers if not (each.entry or each.command)]
    assert lacking == []


def test_paths_of_the_user_are_placed_and_names_are_not(write):
    spec = {
        **SPEC,
        "data": {**SPEC["data"], "train": "./rows", "evaluation": "/data/dev.jsonl"},
        "train": {"output": "runs/one"},
    }
    plan = write(spec, "huggingface", below="a/out").compiled.plans["huggingface"]
    assert plan.data.train == "../../rows"
    assert plan.data.evaluation == "/data/dev.jsonl"
    assert plan.runtime.output == "../../runs/one"
    assert plan.model.path == "meta-llama/Llama-3.1-8B-Instruct"
    hub = {**SPEC, "data": {**SPEC["data"], "train": "trl-lib/Capybara"}}
    assert write(hub, "huggingface").compiled.plans["huggingface"].data.train == "trl-lib/Capybara"


def test_a_module_of_rewards_beside_the_spec_is_imported(write, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    rewarded = {**SPEC, "objective": {"grpo": {"rewards": ["rewards.correct"]}}}
    called = write(rewarded, "trl", below="a/out").start()
    first, second = called.environment["PYTHONPATH"].split(":")
    assert (called.folder / first).resolve() == called.folder.parent.parent
    assert second == "/theirs"
    named = {**SPEC, "objective": {"grpo": {"rewards": ["accuracy_reward"]}}}
    assert "PYTHONPATH" not in write(named, "trl").text("run.sh")


@pytest.mark.parametrize(
    ("reward", "file"), [("rewards.correct", "../rewards.py"), ("own.math.exact", "../own")]
)
def test_a_module_of_rewards_is_brought_to_a_rented_machine(write, reward, file):
    rewarded = {**SPEC, "objective": {"grpo": {"rewards": [reward]}}}
    task = yaml.safe_load(write(rewarded, "trl", "skypilot").text("skypilot/task.yaml"))
    assert task["file_mounts"][f"~/{file.removeprefix('../')}"] == file
    assert task["envs"]["PYTHONPATH"] == ".."
    theirs = {**SPEC, "objective": {"grpo": {"rewards": ["trl.rewards.accuracy_reward"]}}}
    other = yaml.safe_load(write(theirs, "trl", "skypilot").text("skypilot/task.yaml"))
    assert "PYTHONPATH" not in other["envs"]
    assert not any("rewards" in each for each in other.get("file_mounts", {}))


def test_ms_swift_is_told_where_the_pictures_of_the_data_lie(write):
    data = {**SPEC["data"], "train": "data/train.jsonl"}
    seeing = {**SPEC, "model": "qwen2.5-vl-7b", "data": data}
    for targets, file in (((), "launch/launch.sh"), (("slurm",), "slurm/train.sbatch")):
        assert "export ROOT_IMAGE_DIR=../data\n" in write(seeing, "ms-swift", *targets).text(file)
    without = {**seeing, "data": {**data, "images": {"per_sample": 0}}}
    assert "ROOT_IMAGE_DIR" not in write(without, "ms-swift").text("launch/launch.sh")
    assert "ROOT_IMAGE_DIR" not in write(seeing, "trl").text("launch/launch.sh")


def test_a_pod_imports_rewards_from_its_volume(write):
    objective = {"grpo": {"rewards": ["rewards.correct"]}}
    rewarded = {**SPEC, "objective": objective, "job": {"volume": "work"}}
    job = yaml.safe_load(write(rewarded, "trl", "kubeflow").text("kubeflow/trainjob.yaml"))
    assert {"name": "PYTHONPATH", "value": ".."} in job["spec"]["trainer"]["env"]


@pytest.mark.parametrize("written_as", ["./tiny", "./tiny/config.json", "tiny"])
def test_a_directory_of_weights_is_found_from_the_bundle(write, tmp_path, written_as):
    from tunec.schemas.models.catalogue import card

    (tmp_path / "home/tiny").mkdir(parents=True)
    config = json.dumps(dict(card("llama-3.2-1b").config))
    (tmp_path / "home/tiny/config.json").write_text(config, "utf-8")
    written = write({**SPEC, "model": written_as}, "trl")
    assert yaml.safe_load(written.text("trl/sft.yaml"))["model_name_or_path"] == "../tiny"


@pytest.mark.parametrize(
    ("targets", "severity"),
    [
        (["deepspeed"], "note"),
        (["huggingface"], "note"),
        (["launch"], "warning"),
        (["huggingface", "slurm"], "warning"),
    ],
)
def test_what_cannot_be_started_says_so_and_has_no_entry(tmp_path, targets, severity):
    compiled = tunec.compile({**SPEC, "engine": "deepspeed"}, targets=targets, output=tmp_path)
    assert compiled.ok
    assert compiled.run is None
    assert [each.severity for each in compiled.diagnostics if each.id == "script-not-named"] == [
        severity
    ]


def test_a_file_that_nobody_writes_is_an_error(tmp_path):
    spec = {**SPEC, "engine": "deepspeed", "launcher": "accelerate", "run": {"script": "a.py"}}
    alone = tunec.compile(spec, targets=["accelerate"], output=tmp_path)
    assert [each.id for each in alone.diagnostics if each.severity == "error"] == ["E0910"]
    beside = tunec.compile(spec, targets=["accelerate", "deepspeed"], output=tmp_path)
    assert beside.ok
    named = beside.artifacts["accelerate"][0].values["deepspeed_config"]["deepspeed_config_file"]
    assert named == "deepspeed/ds_config.json"


def test_alone_a_file_keeps_the_bare_name():
    spec = {**SPEC, "engine": "deepspeed", "launcher": "accelerate"}
    compiled = tunec.compile(spec, targets=["accelerate", "trl"])
    values = compiled.artifacts["accelerate"][0].values
    assert values["deepspeed_config"]["deepspeed_config_file"] == "ds_config.json"
    assert compiled.run is None


def test_arguments_belong_to_a_script():
    compiled = tunec.compile({**SPEC, "run": {"arguments": ["--x"]}}, targets=["trl"])
    assert "give `script` too" in " ".join(each.message for each in compiled.diagnostics)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(
    ("trainer", "changes", "file"),
    [
        ("openrlhf", {}, "openrlhf_sft.sh"),
        ("openrlhf", {"objective": {"dpo": {}}}, "openrlhf_dpo.sh"),
        ("openrlhf", {"hardware": "a100-80g-x16"}, "openrlhf_sft.sh"),
        ("llama-cookbook", {**SAMSUM, "method": NARROW}, "finetuning.sh"),
    ],
)
def test_a_cluster_gives_a_trainer_of_flags_all_of_them(write, cluster, trainer, changes, file):
    """What its own script passes, and what is passed through: no `train.py` that nobody wrote."""
    passed = {"flags": {"logger": {"wandb": {"project": "it's mine"}}}}
    extra = {"extra": {trainer: passed}} if trainer == "openrlhf" else {}
    job = {"job": {"volume": "work"}} if cluster == "kubeflow" else {}
    written = write({**SPEC, **extra, **job, **changes}, trainer, cluster)
    words = shlex.split(written.text(f"{trainer}/{file}").replace("\\\n", " "), comments=True)
    start = next(at for at, word in enumerate(words) if word.startswith(("openrlhf.", "llama_")))
    assert ("it's mine" in words) is (trainer == "openrlhf")
    assert len(words) > start + 10
    plan = written.compiled.plans[cluster]
    assert shlex.split(plan["launch.script"]) == words[start:-1]
    assert "script-not-named" not in [each.id for each in written.compiled.diagnostics]


@pytest.mark.parametrize("cluster", ["slurm", "skypilot"])
@pytest.mark.parametrize(
    ("trainer", "model", "data", "last"),
    [
        ("minicpm-v", "minicpm-v-2_6", "t.json", ["--deepspeed", "minicpm-v/ds_config.json"]),
        ("glm4@4.45.2", "glm-4-9b-chat", "t.jsonl", [".", "glm4/finetune.yaml"]),
    ],
)
def test_a_cluster_gives_a_script_of_a_repository_its_flags(
    write, cluster, trainer, model, data, last
):
    changes = {"model": model, "data": {"train": data, "samples": 100, "sequence": 1024}}
    script = {"run": {"script": "finetune.py"}, "hardware": "a100-80g-x2"}
    written = write({**SPEC, **changes, **script}, trainer, cluster)
    words = shlex.split(written.compiled.plans[cluster]["launch.script"])
    assert words[0] == "../finetune.py"
    assert {*last} <= {*words}


TRL_ON = {"a100-80g-x2": "torch==2.13.0", "v100-32g-x4": "torch==2.13.0+cu126"}


@pytest.mark.parametrize("hardware", TRL_ON)
@pytest.mark.parametrize("targets", [("trl",), ("trl", "slurm")])
def test_what_a_run_here_imports_is_listed(write, targets, hardware):
    found = write({**SPEC, "hardware": hardware}, *targets).text("requirements.txt").splitlines()
    torch = TRL_ON[hardware]
    index = "--extra-index-url https://download.pytorch.org/whl/cu126"
    assert (index in found) == ("+" in torch)
    assert found[found.index(torch) + 1] == "torchvision"
    assert {"trl==1.16.0", "transformers==5.23.0", "peft==0.21.2"} <= {*found}
    assert "# pip install -r requirements.txt" in found


def test_a_trainer_without_bounds_gets_the_releases_that_it_was_seen_with(write):
    """accelerate 1.15 has not what llama-cookbook imports."""
    data = {**SPEC["data"], "train": "samples.py"}
    spec = {**SPEC, "hardware": "a100-80g-x1", "data": data}
    found = write(spec, "llama-cookbook").text("requirements.txt").splitlines()
    assert {"transformers==4.57.6", "accelerate==1.12.0", "peft==0.18.1"} <= {*found}


def test_what_is_compiled_against_torch_comes_after_it(write):
    spec = {**SPEC, "attention": "flash_attention_2"}
    found = write(spec, "trl").text("requirements.txt").splitlines()
    commands = [line for line in found if line.startswith("# pip")]
    assert commands[0].startswith("# pip install torch==2.13.0 ninja ")
    assert commands[1] == "# pip install --no-build-isolation -r requirements.txt"
    assert any(line.startswith("flash-attn") for line in found)


def test_what_is_started_elsewhere_installs_it_itself(write):
    assert not (write(SPEC, "trl", "skypilot").root / "requirements.txt").exists()
