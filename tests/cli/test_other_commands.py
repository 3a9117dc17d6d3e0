"""catalog, schema, init, completion, the grammar itself, and the process around it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.cli.shell import FIVE, files_below

from tunec import __version__
from tunec.compiler.ir.slots import SLOTS
from tunec.schemas.models.catalogue import card, card_names

KINDS = (
    "devices",
    "clusters",
    "models",
    "datasets",
    "targets",
    "slots",
    "passes",
    "codes",
    "rules",
)

# ── catalog ──────────────────────────────────────────────────────────────────────────────────────


def test_the_catalog_lists_its_kinds(tunec):
    result = tunec("catalog")
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_lists_entries_and_each_entry_shows_itself(tunec, kind):
    rows = tunec("catalog", kind, "--format", "json").json
    assert rows
    assert len(tunec("catalog", kind).out.splitlines()) == len(rows)
    for name in list(rows)[:3]:
        result = tunec("catalog", kind, name)
        assert (result.code, result.err) == (0, "")
        assert result.out.strip()
        assert tunec("catalog", kind, name, "--format", "json").json


def test_a_derived_cluster_shows_itself(tunec):
    assert tunec("catalog", "clusters", "a100-80g-x8").code == 0


def test_a_code_is_shown_as_its_page(tunec):
    assert tunec("catalog", "codes", "E0701").out.startswith("# E0701")


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_entry_is_wrong_usage(tunec, kind):
    result = tunec("catalog", kind, "nothing-of-that-name")
    assert (result.code, result.out) == (2, "")
    assert "nothing-of-that-name" in result.err


def test_an_unknown_kind_names_those_there_are(tunec):
    result = tunec("catalog", "gpus")
    assert result.code == 2
    assert "devices" in result.err


# ── schema ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["spec", "cluster", "device", "model-card"])
def test_each_schema_is_one(tunec, kind):
    result = tunec("schema", kind)
    assert (result.code, result.err) == (0, "")
    Draft202012Validator.check_schema(result.json)


def test_the_spec_schema_is_printed_unasked_and_accepts_the_examples(tunec):
    import yaml

    schema = tunec("schema").json
    assert schema == tunec("schema", "spec").json
    Draft202012Validator(schema).validate(yaml.safe_load(Path(FIVE).read_text("utf-8")))


def test_the_spec_schema_offers_names_and_takes_others(tunec):
    schema = tunec("schema").json
    for part in ("Spec", "PartSpec"):
        fields = schema["$defs"][part]["properties"]
        offered = {
            name: next(each["enum"] for each in fields[name]["anyOf"] if "enum" in each)
            for name in ("model", "hardware")
        }
        assert set(card_names()) <= set(offered["model"])
        assert {"dgx-h100", "a100-sxm4-80g-x8"} <= set(offered["hardware"])
        assert "simpletuner" in json.dumps(fields["targets"])
    spec = {**yaml.safe_load(Path(FIVE).read_text("utf-8")), "targets": ["huggingface@4.44"]}
    for other in ({"model": "me/mine"}, {"hardware": "a100-80g-x3"}, {"hardware": "./here.yaml"}):
        Draft202012Validator(schema).validate({**spec, **other})


def test_a_spec_is_begun_in_a_file_that_editors_can_complete(tunec, tmp_path):
    result = tunec("init", "-o", tmp_path / "spec.yaml")
    assert result.code == 0
    text = (tmp_path / "spec.yaml").read_text("utf-8")
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)[1]
    schema = json.loads((tmp_path / named).read_text("utf-8"))
    Draft202012Validator(schema).validate(yaml.safe_load(text))
    assert tunec("plan", tmp_path / "spec.yaml").code == 0
    again = tunec("init", "-o", tmp_path / "spec.yaml")
    assert (again.code, "already exists" in again.err) == (2, True)
    assert tunec("schema", "-o", tmp_path / "s.json").code == 0
    assert json.loads((tmp_path / "s.json").read_text("utf-8")) == schema


def test_a_spec_on_stdout_leads_editors_to_a_schema_that_is_there(tunec, tmp_path):
    result = tunec("init")
    assert result.code == 0
    address = re.match(r"# yaml-language-server: \$schema=file://(\S+)\n", result.out)[1]
    schema = json.loads(Path(unquote(address)).read_text("utf-8"))
    Draft202012Validator(schema).validate(yaml.safe_load(result.out))


def test_files_that_exist_begin_a_spec(tunec, tmp_path):
    (tmp_path / "sft.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: org/set\nmax_length: 1024\n"
        "per_device_train_batch_size: 4\nlearning_rate: 1.0e-4\nuse_peft: true\nlora_r: 8\n",
        "utf-8",
    )
    asked = ("init", "--from", tmp_path / "sft.yaml", "-o", tmp_path / "spec.yaml")
    lacking = tunec(*asked)
    assert (lacking.code, "a spec needs hardware" in lacking.err) == (1, True)
    assert "is empty" in tunec("plan", tmp_path / "spec.yaml").err
    assert tunec(*asked, "--hardware", "a100-80g-x2").code == 2  # it already exists
    (tmp_path / "spec.yaml").unlink()
    assert tunec(*asked, "--hardware", "a100-80g-x2").code == 0
    schema = json.loads((tmp_path / "spec.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(yaml.safe_load((tmp_path / "spec.yaml").read_text()))
    for command in (("plan",), ("compile", "--set", "train.epochs=1")):
        assert tunec(command[0], tmp_path / "spec.yaml", *command[1:]).code == 0


def test_a_spec_is_translated_to_alone_and_never_over_another(tunec, tmp_path):
    (tmp_path / "a.yaml").write_text("output_dir: out\nlearning_rate: 1.0e-5\n", "utf-8")
    for words in (("--to", "trl"), ("--check", "-o", tmp_path / "s.yaml")):
        assert tunec("translate", tmp_path / "a.yaml", "--to", "spec", *words).code == 2


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("neftune", "did you mean `train.neftune_alpha`?"),
        ("per_device_train_batch_size", "`pin: {batch.micro: ...}`"),
        ("lr", "`train.learning_rate`"),
        ("lora_r", "`method.lora.rank`"),
        ("bf16", "`precision`"),
        ("gradient_checkpointing", "activation_checkpointing.mode"),
        ("max_seq_length", "`data.sequence`"),
        ("load_in_4bit", "`method.qlora`"),
        ("sequence_len", "`data.sequence`"),
        ("trian", "did you mean `train`?"),
    ],
)
def test_an_unknown_field_is_offered_what_is_near_or_nothing(tunec, tmp_path, word, says):
    spec = tmp_path / "spec.yaml"
    spec.write_text(Path(FIVE).read_text("utf-8") + f"{word}: 1\n", "utf-8")
    result = tunec("plan", spec)
    (line,) = [each for each in result.err.splitlines() if "= help: " in each]
    assert says in line


def test_an_unknown_schema_names_those_there_are(tunec):
    result = tunec("schema", "plan")
    assert result.code == 2
    assert "spec" in result.err


# ── init ─────────────────────────────────────────────────────────────────────────────────────────


BEGUN = [
    *("llama-3.1-8b", "glm-4v-9b", "sdxl-base-1.0", "bert-base-uncased", "t5-large"),
    *("stable-diffusion-2-1", "minicpm-v-2_6"),
]


@pytest.mark.parametrize("model", BEGUN)
def test_what_init_prints_compiles(tunec, tmp_path, model):
    written = tunec("init", "--model", model, "--hardware", "a100-80g-x2")
    assert (written.code, written.err) == (0, "")
    (tmp_path / "spec.yaml").write_text(written.out, "utf-8")
    result = tunec("compile", tmp_path / "spec.yaml", "-o", tmp_path / "out")
    assert result.code == 0, result.err
    assert files_below(tmp_path / "out")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("NousResearch/Llama-2-7b-hf", "NousResearch/Llama-2-7b-hf"),
    ],
)
def test_init_names_the_weights_that_were_asked_for(tunec, asked, named):
    assert f"model: {named}  #" in tunec("init", "--model", asked).out


def test_init_counts_the_data_that_it_is_given(tunec, tmp_path):
    (tmp_path / "chat.jsonl").write_bytes(b'{"messages": []}\n' * 3)
    tunec("init", "--data", tmp_path / "chat.jsonl", "-o", tmp_path / "spec.yaml")
    data = yaml.safe_load((tmp_path / "spec.yaml").read_text("utf-8"))["data"]
    assert (data["train"], data["samples"]) == ("chat.jsonl", 3)
    on_the_hub = "org/name:default:train[:10%]"
    assert yaml.safe_load(tunec("init", "--data", on_the_hub).out)["data"]["train"] == on_the_hub
    both = tunec("init", "--data", "a.jsonl", "--from", tmp_path / "spec.yaml")
    assert both.code == 2
    assert "--set data.train=" in both.err


@pytest.mark.parametrize("method", ["full", "lora", "qlora", "int8_lora"])
def test_init_takes_every_method(tunec, tmp_path, method):
    (tmp_path / "spec.yaml").write_text(tunec("init", "--method", method).out, "utf-8")
    assert tunec("plan", tmp_path / "spec.yaml").code == 0


@pytest.mark.parametrize("arguments", [["--model", "llama-3.1-9b"], ["--hardware", "a100-90g-x8"]])
def test_init_of_something_unknown_is_wrong_usage(tunec, arguments):
    result = tunec("init", *arguments)
    assert (result.code, result.out) == (2, "")
    assert arguments[1] in result.err


@pytest.mark.parametrize("named", ["mine", "mine/config.json", "{folder}/mine"])
def test_init_takes_a_model_and_hardware_by_their_files(tunec, tmp_path, monkeypatch, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "specs").mkdir()
    config = json.dumps(dict(card("qwen3-8b").config))
    (tmp_path / "mine/config.json").write_text(config, "utf-8")
    node = {"accelerators": [{"device": "rtx-4090", "count": 2}]}
    host = {"memory": "128GiB", "cores": 16, "memory_bandwidth": "80GB/s"}
    lab = {"name": "lab", "title": "Our lab", "nodes": [{**node, "host": host}]}
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(lab), "utf-8")
    asked = (
        "--model",
        named.format(folder=tmp_path),
        "--hardware",
        "lab.yaml",
        "--method",
        "qlora",
    )
    written = tunec("init", *asked, "-o", "specs/spec.yaml")
    assert written.code == 0, written.err
    text = (tmp_path / "specs/spec.yaml").read_text("utf-8")
    assert "model: ../mine" in text
    assert "hardware: ../lab.yaml" in text
    assert str(tmp_path) not in text


def test_init_shows_faults_of_a_file_where_they_are(tunec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text("name: lab\nnodes:\n  - accelerators: []\n", "utf-8")
    result = tunec("init", "--hardware", "lab.yaml")
    assert (result.code, result.out) == (1, "")
    assert "--> lab.yaml:3:" in result.err


def test_init_of_a_model_that_has_no_card_says_how_to_make_one(tunec, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "nobody_knows"}', "utf-8")
    result = tunec("init", "--model", tmp_path / "config.json", "-o", tmp_path / "spec.yaml")
    assert (result.code, result.out) == (2, "")
    assert "nobody_knows" in result.err
    assert not (tmp_path / "spec.yaml").exists()


# ── completion ───────────────────────────────────────────────────────────────────────────────────


def test_the_bash_completion_parses(tunec, tmp_path):
    result = tunec("completion", "bash")
    assert (result.code, result.err) == (0, "")
    script = tmp_path / "tunec.bash"
    script.write_text(result.out, "utf-8")
    subprocess.run(["bash", "-n", script], check=True)
    assert "compile" in result.out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pl", "plan"),
        ("plan five", "five.yaml"),
        ("compile five.yaml --target hug", "huggingface"),
        ("plan five.yaml --hardware a100-sxm4-80g-x", "a100-sxm4-80g-x8"),
        ("explain five.yaml zero.st", "zero.stage"),
        ("catalog mod", "models"),
        ("init --model llama-3.1-8", "llama-3.1-8b"),
    ],
)
def test_bash_completes_commands_files_and_names(tunec, tmp_path, typed, offered):
    (tmp_path / "tunec.bash").write_text(tunec("completion", "bash").out, "utf-8")
    (tmp_path / "five.yaml").touch()
    line = (
        f"source tunec.bash; COMP_WORDS=(tunec {typed}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))"
    )
    line += '; _shtab_tunec tunec; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path)
    assert offered in done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("pl", "plan"), ("plan spec.yaml --hardware a100-sxm4-80g-x", "a100-sxm4-80g-x8")],
)
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
def test_fish_completes_commands_and_names(tunec, tmp_path, typed, offered):
    (tmp_path / "tunec.fish").write_text(tunec("completion", "fish").out, "utf-8")
    line = f"source tunec.fish; complete -C 'tunec {typed}'"
    done = subprocess.run(["fish", "-c", line], capture_output=True, text=True, cwd=tmp_path)
    assert offered in [each.split("\t")[0] for each in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_have_one_too(tunec, shell):
    assert tunec("completion", shell).out


# ── the grammar ──────────────────────────────────────────────────────────────────────────────────

COMMANDS = ("compile", "plan", "explain", "catalog", "schema", "init", "completion")


def test_help_lists_the_commands_and_the_exit_codes(tunec):
    result = tunec("--help")
    assert (result.code, result.err) == (0, "")
    assert all(command in result.out for command in COMMANDS)
    assert "exit codes" in result.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(tunec, command):
    result = tunec(command, "--help")
    assert (result.code, result.err) == (0, "")
    assert command in result.out


def test_the_version(tunec):
    assert tunec("--version").out == f"tunec {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["complie"], ["compile"], ["plan"], ["plan", FIVE, "--format", "xml"], ["init", "extra"]],
)
def test_wrong_usage_is_2(tunec, arguments):
    result = tunec(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "usage: tunec" in result.err


# ── the process ──────────────────────────────────────────────────────────────────────────────────


def process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tunec", *arguments], capture_output=True, check=False, **options
    )


def test_the_module_runs_and_returns_its_code():
    done = process("--version", text=True)
    assert (done.returncode, done.stdout) == (0, f"tunec {__version__}\n")
    assert process("explain", "E9999").returncode == 2


def test_a_reader_that_goes_away_is_no_fault_to_tell():
    command = f'"{sys.executable}" -m tunec catalog slots | head -n 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, text=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_a_spec_of_another_directory_is_read_as_from_there(tmp_path):
    done = process("plan", FIVE, "--format", "json", cwd=tmp_path, text=True)
    assert done.returncode == 0, done.stderr


def test_a_bug_is_70_and_says_how_to_report_it(capsys, monkeypatch):
    from tunec.compiler.cli import main
    from tunec.targets.registry import REGISTRY

    def broken(*_):
        raise RuntimeError("unexpected")

    monkeypatch.setattr(main, "_dispatch", broken)
    assert main.run(["catalog"], REGISTRY, "0") == 70
    assert "please report it" in capsys.readouterr().err


def test_starting_imports_nothing_heavy():
    code = "import sys, tunec.compiler.cli.main as m, tunec.targets.registry as r\n"
    code += f"m.run(['plan', {FIVE!r}], r.REGISTRY, '0')\n"
    code += "print(sorted({'torch', 'deepspeed', 'transformers', 'peft'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_part_of_a_name_lists_the_entries_with_it(tunec):
    listed = tunec("catalog", "models", "Qwen3-VL").out.splitlines()
    every = tunec("catalog", "models").out.splitlines()
    assert len(listed) == sum("qwen3-vl" in line.lower() for line in every) > 3
    assert tunec("catalog", "models", "Qwen3-VL", "--format", "json").code == 2


def test_every_catalogue_model_can_be_listed(tunec):
    found = tunec("catalog", "models", "--format", "json").json
    assert [name for name in found if name in card_names()] == sorted(card_names())
    assert found["google/gemma-3-27b-it"] == "other weights for the modules of gemma-3-27b"
    assert found["NousResearch/Llama-2-7b-hf"] == "the weights of llama-2-7b"
    assert list(tunec("catalog", "slots", "--format", "json").json) == list(SLOTS)


def test_the_catalog_for_machines_names_all_of_each_kind(tunec):
    every = tunec("catalog", "--format", "json").json
    assert list(every) == list(KINDS)
    assert "llama-3.1-8b" in every["models"]
    assert "did you mean `llama-3.1-8b`" in tunec("catalog", "models", "lama-3.1-8b").err


@pytest.mark.parametrize("command", ["compile", "report", "translate"])
def test_an_empty_place_to_write_to_is_wrong_usage(tunec, command):
    result = tunec(command, "spec.yaml", "-o", "")
    assert result.code == 2
    assert "is empty" in result.err


def test_a_file_that_another_names_is_called_from_where_the_command_runs(
    tunec, tmp_path, monkeypatch
):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/ds_config.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "gradient_cliping": 1.0}\n', "utf-8"
    )
    arguments = "output_dir: o\nper_device_train_batch_size: 1\ndeepspeed: ds_config.json\n"
    (tmp_path / "run/training_args.yaml").write_text(arguments, "utf-8")
    monkeypatch.chdir(tmp_path)
    result = tunec("lint", "run/training_args.yaml", "--format", "github")
    assert result.code == 1
    assert "file=run/ds_config.json," in result.out


def test_a_denoiser_without_transformer_layers_is_planned_or_refused(tunec, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "tunec: 1\nmodel: sdxl-base-1.0\nmethod: full\nhardware: l4-x4\n"
        "data: {train: images, samples: 5k, resolution: 512}\n"
    )
    assert "E0701" in tunec("plan", spec).err


@pytest.mark.parametrize("command", [["lint"], ["translate", "--to", "deepspeed", "-o", "out"]])
def test_a_hardware_file_that_is_wrong_is_told_with_its_places(tunec, tmp_path, command):
    config, hardware = tmp_path / "ds.json", tmp_path / "two.yaml"
    config.write_text('{"train_micro_batch_size_per_gpu": 1}\n', "utf-8")
    hardware.write_text("name: two\nnodes: 2\ndevices: v100\n", "utf-8")
    result = tunec(*command, config, "--hardware", hardware)
    assert result.code == 1
    told = result.out + result.err
    assert f"{hardware}:2:8" in told
    assert f"{hardware}:3:1" in told
