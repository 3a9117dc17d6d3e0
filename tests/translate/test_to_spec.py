"""Files that are compiled from a spec become a spec that compiles to the same files."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hypothesis_profiles import share_by_day
from tests.source_packages import source_package
from tests.translate.test_cases import ASKED, FILE

from tunec.compiler.cli.arguments import build_parser
from tunec.compiler.cli.session import standard
from tunec.compiler.cli.spec_from_files import asking_of
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_mapping, load_text
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.documents import read_files, read_texts
from tunec.compiler.lints.environment import environment_of
from tunec.compiler.lints.neighbours import catalogue_model
from tunec.compiler.translate.foundation import SpecOptions
from tunec.compiler.translate.sources import sources_of
from tunec.compiler.translate.to_spec import Asking, spec_of_files
from tunec.compiler.translate.translate import given_slots
from tunec.schemas.frozen import replace
from tunec.targets.registry import TARGETS

READABLE = TARGETS.readable()
KNOWN = {name: TARGETS[name] for name in TARGETS.names()}
TEXT = ("llama-3.2-1b", "qwen2.5-0.5b", "meta-llama/Llama-3.1-8B-Instruct")
HARDWARE = ("a100-80g-x1", "a100-80g-x8", "t4-x2", "h100-x8-n2", "rtx-4090-x4")
OPTIMIZERS = ("adamw", "adamw_8bit", "paged_adamw_32bit", "adafactor", "lion", "sgd")
ROADS = {
    "huggingface": (["huggingface", "launch"], TEXT, HARDWARE),
    "trl": (["trl", "launch"], TEXT, HARDWARE),
    "trl by accelerate": (["trl", "accelerate"], TEXT, HARDWARE),
    "older releases": (["huggingface@4.46", "launch"], TEXT, HARDWARE),
    "deepspeed": (["deepspeed", "launch"], TEXT, HARDWARE[1:]),
    "slurm": (["trl", "slurm"], TEXT, HARDWARE),
    "kubeflow": (["trl", "kubeflow"], TEXT, HARDWARE),
    "skypilot": (["trl", "skypilot"], TEXT, ("a100-80g-x8", "h100-x8")),
    "minicpm-v": (["minicpm-v"], ("minicpm-v-2_6",), ("a100-80g-x2", "a100-80g-x8")),
    "glm4": (["glm4"], ("glm-4-9b-0414", "glm-4v-9b"), ("a100-80g-x1", "h100-x8")),
    "llama-cookbook": (["llama-cookbook"], TEXT, ("a100-80g-x1", "a100-80g-x4")),
    "simpletuner": (["simpletuner"], ("flux.1-dev", "sdxl-base-1.0"), ("a100-80g-x1", "h100-x8")),
}
NARROW = {
    "minicpm-v": ("train.json", {"epochs", "steps", "learning_rate", "schedule", "warmup", "seed"}),
    "glm4": ("train.jsonl", {"epochs", "steps", "learning_rate", "schedule", "warmup", "output"}),
    "llama-cookbook": ("samsum", {"learning_rate", "seed", "output"}),
    "simpletuner": ("datasets/set", {"steps", "learning_rate", "keep_checkpoints", "output"}),
}
"""The data and the settings of training that programs take which have little to choose from."""


@st.composite
def specs(draw, road):
    targets, models, hardware = ROADS[road]
    model = draw(st.sampled_from(models))
    is_picture = road == "simpletuner"
    data = {"train": draw(st.sampled_from(("data/train.jsonl", "org/set")))}
    if is_picture:
        data["resolution"] = draw(st.sampled_from((512, 1024)))
    else:
        data["sequence"] = draw(st.sampled_from((512, 1024, 2048)))
        data["packing"] = model in TEXT and draw(st.booleans())
    if draw(st.booleans()):
        data["samples"] = draw(st.integers(1000, 100_000))
    if not is_picture and draw(st.booleans()):
        data["evaluation"] = data["train"] if draw(st.booleans()) else "data/dev.jsonl"
    spec = {
        "tunec": 1,
        "model": model,
        "method": draw(methods()),
        "data": data,
        "hardware": draw(st.sampled_from(hardware)),
        "train": draw(trainings()),
        "targets": targets,
        "pin": draw(pins()),
    }
    for name, choices in (
        ("precision", ("bf16", "fp16")),
        ("attention", ("sdpa", "eager")),
        ("engine", ("deepspeed", "fsdp", "ddp")),
        ("objective", ("dpo", "reward") if road.startswith("trl") else ()),
    ):
        if choices and draw(st.sampled_from((False, False, True))):
            spec[name] = draw(st.sampled_from(choices))
    if draw(st.booleans()):
        spec["batch"] = {"global": draw(st.sampled_from((8, 16, 32, 64)))}
    return narrowed(spec, *NARROW[road]) if road in NARROW else spec


def narrowed(spec, data, settings_taken):
    """The part of a spec that a program with few settings can be told."""
    kept = {
        name: spec[name]
        for name in ("tunec", "model", "hardware", "targets", "batch")
        if name in spec
    }
    train = {name: value for name, value in spec["train"].items() if name in settings_taken}
    options = spec["method"].get("lora", {}) if isinstance(spec["method"], dict) else {}
    rank = {name: value for name, value in options.items() if name == "rank"}
    method = {"lora": rank}
    if data == "samsum":
        method, train["schedule"] = {"lora": {**rank, "targets": ["q_proj"]}}, "constant"
    inside = {
        name: each for name, each in spec["data"].items() if name not in ("train", "evaluation")
    }
    return {**kept, "method": method, "train": train, "data": {"train": data, **inside}}


@st.composite
def methods(draw):
    name = draw(st.sampled_from(("full", "lora", "qlora", "lora")))
    if name == "full":
        return "full"
    options = {
        "rank": st.sampled_from((4, 8, 16, 64)),
        "alpha": st.sampled_from((8, 16.5, 64)),
        "dropout": st.sampled_from((0, 0.05, 0.1)),
        "targets": st.sampled_from(("attention", "mlp", ["q_proj", "v_proj"], "all-linear")),
        "rslora": st.booleans(),
    }
    return {name: {key: draw(each) for key, each in options.items() if draw(st.booleans())}}


@st.composite
def trainings(draw):
    found = {"epochs": draw(st.sampled_from((1, 2.5, 3)))}
    if draw(st.booleans()):
        found = {"steps": draw(st.integers(10, 10_000))}
    options = {
        "learning_rate": st.sampled_from((1e-5, 3e-4)),
        "schedule": st.sampled_from(("constant", "linear", "cosine", "constant_with_warmup")),
        "warmup": st.sampled_from((0, 10, 0.05)),
        "optimizer": st.sampled_from(OPTIMIZERS)
        | st.fixed_dictionaries(
            {"beta2": st.sampled_from((0.95, 0.99)), "weight_decay": st.sampled_from((0, 0.1))}
        ),
        "keep_checkpoints": st.sampled_from((None, 1, 5)),
        "neftune_alpha": st.just(5),
        "seed": st.integers(1, 1000),
        "output": st.just("runs/here"),
        "report_to": st.just(["wandb"]),
    }
    return {**found, **{key: draw(e) for key, e in options.items() if draw(st.booleans())}}


@st.composite
def pins(draw):
    options = {
        "batch.micro": st.sampled_from((1, 2)),
        "zero.stage": st.sampled_from((1, 2, 3)),
        "zero.reduce_bucket": st.just(123_456_789),
        "activation_checkpointing.mode": st.sampled_from(("none", "layer")),
        "schedule.log_steps": st.integers(1, 50),
        "schedule.save_steps": st.integers(10, 500),
        "runtime.dataloader_workers": st.integers(0, 8),
        "adapter.bias": st.just("all"),
    }
    one_in_four = st.sampled_from((False, False, False, True))
    return {key: draw(each) for key, each in options.items() if draw(one_in_four)}


BUNDLE = ("kubeflow", "bundle.yaml")
"""The texts of the other files, which say the digest of the spec."""
SAYING_LENGTH = {"sft.yaml", "dpo.yaml", "reward.yaml", "finetune.sh", "finetune.yaml"}
UNSAID = frozenset({"optimizer", "scheduler"})
"""Blocks of ds_config.json without which the script brings its own: a spec always has one."""


def resolved(values, wanted):
    """The values without what a file left to its program, of which it says nothing."""
    return {key: value for key, value in values.items() if key in wanted or key not in UNSAID}


def compiled(loaded):
    assert loaded.spec is not None, [each.message for each in loaded.diagnostics]
    asked = [TARGETS.resolve(name, loaded.spec.software) for name in loaded.spec.targets]
    return compile_spec(loaded, asked, repairing=False)


def values_of(found):
    return {
        (target, each.name): each.values
        for target, files in found.artifacts.items()
        for each in files
    }


@pytest.mark.parametrize("road", ROADS)
def test_a_spec_made_of_compiled_files_compiles_to_them_again(road, tmp_path_factory):
    """From a spec to files, to a spec, to files."""
    whole = []

    @share_by_day(len(ROADS) // 4)
    @given(specs(road))
    def holds(spec):
        first = compiled(load_mapping(spec))
        if not first.ok:
            return
        paths = written(first, tmp_path_factory.mktemp("files"))
        found = specified(paths, spec)
        assert found.ok, [(each.id, each.message) for each in found.diagnostics] + [found.text]
        again = compiled(load_text(found.text))
        written_again = values_of(again)
        for file, values in values_of(first).items():
            if file != BUNDLE:
                assert resolved(written_again[file], values) == values, (file, found.text)
        whole.append(spec)

    holds()
    assert whole


CASES = sorted((Path(__file__).parent / "cases").glob("spec-*.md"))
COMPILED = {
    *("spec-minicpm-v", "spec-trl-qlora", "spec-trl-dpo-fsdp", "spec-trl-reward"),
    *("spec-flags-fsdp", "spec-slurm", "spec-glm4", "spec-grpo-zero-3", "spec-following-keys"),
}
"""Those whose spec leaves nothing to settle; the others are read, and say what is."""


def test_most_cases_leave_nothing_to_settle():
    assert {case.stem for case in CASES} > COMPILED
    assert len(CASES) >= 12


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_what_people_write_means_the_same_as_a_spec(name, tmp_path, monkeypatch):
    """The files of the spec, read, say of each slot what those that it was made of say."""
    text = (Path(__file__).parent / "cases" / f"{name}.md").read_text("utf-8")
    for file, content in FILE.findall(text):
        (tmp_path / file).write_text(content, "utf-8")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(ASKED.findall(text)[-1][0])[1:]
    options = build_parser("").parse_args(words)
    asking = asking_of(options, standard(TARGETS, "text"), None)
    paths = [Path(each) for each in options.files]
    spec = spec_of_files(paths, asking)
    assert spec.ok, [each.message for each in spec.diagnostics]
    found = compiled(load_text(spec.text))
    assert found.ok, [each.message for each in found.diagnostics]
    before = sources_in(read_files(paths, READABLE, asking.environment.readers), asking)
    after = sources_in(read_texts(found.texts(), READABLE, asking.environment.readers), asking)
    for slot, value in before.known.values.items():
        if slot not in (*before.idle, "launch.script"):
            assert after.known.values.get(slot, found.planned.plan[slot]) == value, slot


def sources_in(reading, asking):
    documents, missing, unread = reading.documents, reading.missing, reading.unread
    around = replace(asking.environment, cluster=None, devices={})
    run = LintContext(documents, around, READABLE, missing, unread, catalogue_model)
    return sources_of(reading, run, asking.given)


def written(found, folder):
    for path, text in found.texts().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return [folder / path for path in found.texts()]


def specified(paths, spec):
    named = [name for name in spec["targets"] if "@" in name]
    around = environment_of(READABLE, hardware=spec["hardware"], readers=named)
    method = spec["method"]
    beside = SpecOptions(
        model=spec["model"],
        hardware=spec["hardware"],
        method=method if isinstance(method, str) else next(iter(method)),
    )
    asking = Asking(
        around,
        READABLE,
        KNOWN,
        TARGETS.resolve,
        beside,
        output=Path("spec.yaml"),
        given=given_slots(unsaid_by_files(spec, paths)),
    )
    return spec_of_files(paths, asking)


def unsaid_by_files(spec, paths):
    """What no file of some roads says: where the data lie, and how long a sample is."""
    yield f"data.train={spec['data']['train']}"
    if "sequence" in spec["data"] and not {path.name for path in paths} & SAYING_LENGTH:
        yield f"data.sequence={spec['data']['sequence']}"
    if spec["targets"][0] == "deepspeed":
        optimizer = spec["train"].get("optimizer", "adamw")
        yield f"optimizer.name={optimizer if isinstance(optimizer, str) else 'adamw'}"


DIALECTS = {
    ("axolotl", "0.19.0", "axolotl"): (
        *("llama-3/lora-1b.yml", "llama-3/qlora-1b.yml", "llama-3/fft-8b.yaml"),
        *("llama-3/lora-8b.yml", "mistral/qlora.yml"),
        *("qwen2/dpo.yaml", "gemma2/qlora.yml", "llama-3/instruct-dpo-lora-8b.yml"),
    ),
    ("llamafactory", "0.9.5", "llamafactory"): (
        *("train_lora/qwen3_lora_sft.yaml", "train_lora/qwen3_lora_sft_ds3.yaml"),
        *("train_lora/qwen3_lora_dpo.yaml", "train_full/qwen3_full_sft.yaml"),
        *("ascend/qwen3_full_sft_fsdp2.yaml", "train_lora/qwen3vl_lora_sft.yaml"),
    ),
}
"""Examples that the makers of dialects ship, and the target that runs what is made of them."""
SETTLED_BY_HAND = {"val_set_size", "model.config"}
"""What no spec says: a share of the data that is held back, and what a model of no card is like."""


@pytest.mark.parametrize(
    ("package", "release", "runner", "name"),
    [(*maker, name) for maker, names in DIALECTS.items() for name in names],
)
def test_what_the_makers_of_dialects_ship_compiles(package, release, runner, name, monkeypatch):
    """The printed spec compiles, and says so where another program runs the same training."""
    spec = spec_of_example(package, release, name, monkeypatch)
    errors = [each.message for each in spec.diagnostics if each.severity == "error"]
    assert all(message.split()[0] in SETTLED_BY_HAND for message in errors), errors
    found = compiled(load_text(spec.text))
    assert found.ok, [each.message for each in found.diagnostics]
    assert {runner, "launch"} >= found.artifacts.keys() >= {runner}
    said = [each.message for each in spec.diagnostics if each.severity == "note"]
    told = f"file of {package}, which tunec does not write: {runner} will run the spec"
    assert any(told in message for message in said) == (runner != package)


def test_four_bits_under_the_first_fsdp_are_refused_under_the_second(monkeypatch):
    """Axolotl's file for version 1 asks for what it refuses, or saves in part, in version 2."""
    spec = spec_of_example("axolotl", "0.19.0", "llama-3/qlora-fsdp-70b.yaml", monkeypatch)
    told = {each.id: each.severity for each in compiled(load_text(spec.text)).diagnostics}
    assert [name for name, severity in told.items() if severity == "error"] == ["refused-pair"]
    assert told["fsdp-adapter-of-one-rank"] == "warning"


def spec_of_example(package, release, name, monkeypatch):
    folder = source_package(package, release)
    monkeypatch.chdir(folder)
    path = f"examples/{name}"
    like = "qwen2.5-vl-7b" if "vl" in name else "llama-3.1-8b"
    words = ["init", "--from", path, "--hardware", "a100-80g-x8", "--model", like]
    options = build_parser("").parse_args(words)
    return spec_of_files([Path(path)], asking_of(options, standard(TARGETS, "text"), None))


def test_flags_of_a_script_of_ones_own_stay_its_arguments_in_order(tmp_path, monkeypatch):
    """What the Trainer's class knows is in its file; the started command has the others again."""
    kept = ["--data_path", "a.json", "--fancy", "--names", "b c", "1e-4", "--lora_r", "8"]
    trainers = "--bf16 True --output_dir out --num_train_epochs 1 --learning_rate 1e-4"
    flags = shlex.join([*kept[:2], *trainers.split(), *kept[2:]])
    text = f"torchrun --nproc_per_node=2 train.py {flags} --scale=2"
    Path(tmp_path, "t.sh").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    words = "init --from t.sh --hardware a100-80g-x2 --model llama-3.2-1b --method lora"
    given = "--set data.train=a.json --set data.sequence=512"
    options = build_parser("").parse_args(shlex.split(f"{words} {given}"))
    spec = spec_of_files([Path("t.sh")], asking_of(options, standard(TARGETS, "text"), None))
    assert spec.ok, [each.message for each in spec.diagnostics]
    loaded = load_text(spec.text)
    kept += ["--scale", "2"]
    assert loaded.spec.run.arguments == ("huggingface/training_args.yaml", *kept)
    found = compiled(loaded)
    assert found.planned.plan["adapter.rank"] == 8
    launched = {each.name: each.text for each in found.artifacts["launch"]}["launch.sh"]
    assert shlex.split(launched.rpartition("train.py")[2])[1:-1] == kept


def test_hardware_is_named_from_where_the_spec_lies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    node = "{accelerators: [{device: h100-sxm-80g, count: 2}], host: {memory: 500GiB, cores: 32}}"
    Path("mine.yaml").write_text(f"name: mine\nnodes: [{node}]\n", "utf-8")
    Path("sft.yaml").write_text(
        "model_name_or_path: meta-llama/Llama-3.2-1B\ndataset_name: org/set\nuse_peft: true\n"
        "max_length: 512\nbf16: true\n",
        "utf-8",
    )
    Path("below").mkdir()
    words = "init --from sft.yaml --hardware ./mine.yaml -o below/spec.yaml"
    options = build_parser("").parse_args(shlex.split(words))
    asking = asking_of(options, standard(TARGETS, "text"), Path(options.output))
    spec = spec_of_files([Path("sft.yaml")], asking)
    assert spec.ok, [each.message for each in spec.diagnostics]
    assert load_text(spec.text, base=Path("below")).spec.hardware == "../mine.yaml"


def test_the_files_within_a_clusters_bundle_are_read(tmp_path):
    """The manifests alone are enough: the ConfigMap among them holds the trainer's files."""
    spec = {
        "tunec": 1,
        "model": "llama-3.2-1b",
        "method": {"lora": {"rank": 4}},
        "data": {"train": "org/set", "sequence": 512},
        "hardware": "h100-x8-n2",
        "train": {"epochs": 2, "learning_rate": 3e-5},
        "targets": ["trl", "kubeflow"],
        "pin": {"zero.stage": 2},
    }
    first = compiled(load_mapping(spec))
    paths = written(first, tmp_path)
    manifests = [path for path in paths if path.parent.name == "kubeflow"]
    assert {path.name for path in manifests} >= {"trainjob.yaml", "bundle.yaml"}
    found = specified(manifests, spec)
    assert found.ok, [each.message for each in found.diagnostics]
    assert "not carried over" not in found.text
    again = values_of(compiled(load_text(found.text)))
    for file, values in values_of(first).items():
        if file != BUNDLE:
            assert resolved(again[file], values) == values, file
