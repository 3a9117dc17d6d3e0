"""From text to a typed spec: good specs load, mangled ones are told, nothing ever raises."""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunec.compiler.diagnostics import formats, terminal
from tunec.compiler.frontend.load import MAPPING, Loaded, load_mapping, load_spec, load_text
from tunec.compiler.frontend.names import is_path
from tunec.compiler.ir.slots import SLOTS
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.source import COMMAND_LINE, text_of

TARGETS = ("deepspeed", "huggingface", "simpletuner", "launch")

INVOICES = """\
tunec: 1
name: invoices-glm4v
model: glm-4v-9b
method: {lora: {rank: 8, alpha: 32, dropout: 0.1, targets: attention}}
data: {train: train.jsonl, sequence: 1024, images: {per_sample: 1}}
hardware: a100-80g-x8
budget: {gpu_memory: 72GiB, host_memory: 400GiB}
batch: {global: 64}
train: {epochs: 3, learning_rate: 1e-4}
software: {transformers: "4.40.2", deepspeed: "0.19"}
pin: {zero.stage: 2}
"""
LONG = (Path(__file__).parent / "long_spec.yaml").read_text("utf-8")
INLINE = """\
tunec: 1
model: {path: ./mine, config: {model_type: llama, sizes: [1, 2]}, stored_dtype: fp16}
method: full
data: {train: x}
hardware:
  name: lab
  nodes:
    - accelerators: [{device: titan-rtx}, {device: gtx-1080-ti, count: 2}]
      host: {memory: 64GiB, cores: 16}
train: {warmup: 100, optimizer: lion}
devices: best
"""
GOOD = {"invoices": INVOICES, "long": LONG, "inline": INLINE}


def check(loaded: Loaded) -> Loaded:
    """What holds for anything that was loaded."""
    errors = [each for each in loaded.diagnostics if each.severity == "error"]
    assert (loaded.spec is None) == bool(errors)
    for each in loaded.diagnostics:
        assert each.primary.span is not None
        assert each.message[0] in "`—" or each.message[0].islower() or each.message[:4] == "JSON"
        assert not each.message.endswith(".")
        assert each.message.isprintable()
        assert terminal.render(each, loaded.sources, color=True)
        for label in each.labels:
            source = loaded.sources.get(label.span.file)
            if source is not None:
                text_of(label.span, source)
                assert label.span.line <= label.span.end_line
    assert json.loads(formats.render_json(loaded.diagnostics)) is not None
    formats.render_github(loaded.diagnostics)
    formats.sarif_log(loaded.diagnostics, "0")
    return loaded


# ── good specs ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", GOOD)
def test_good_specs_load(name):
    loaded = check(load_text(GOOD[name], targets=TARGETS))
    assert not loaded.diagnostics
    assert loaded.spec is not None


def test_values_are_typed():
    spec = load_text(LONG).spec
    assert spec.data.samples == 52_000
    assert spec.data.sequence == 4_096
    assert spec.budget.gpu_memory == 0.9
    assert spec.budget.host_memory == 200 * 2**30
    assert spec.train.learning_rate == 2e-4
    assert spec.train.steps == 2000
    assert spec.train.warmup.share == 0.03
    assert spec.train.output == "out/chat.v2_qlora"
    assert spec.train.keep_checkpoints is None
    assert spec.method.qlora.targets == ("q_proj", "k_proj", "v_proj")
    assert spec.method.qlora.dropout == 0.05
    assert spec.batch.global_ == 128
    assert dict(spec.pin) == {
        "zero.stage": {"value": 3, "reason": "the old checkpoints are of stage 3"},
        "zero.reduce_bucket": 500_000_000,
        "devices.budget": 70 * 2**30,
        "runtime.report_to": ("tensorboard",),
        "adapter.dropout": 0.05,
    }


def test_inline_facts_stay_as_they_are():
    loaded = load_text(INLINE)
    assert loaded.spec.model.config == {"model_type": "llama", "sizes": [1, 2]}
    assert isinstance(loaded.cluster, Cluster)
    assert loaded.cluster.nodes[0].accelerators[1].count == 2
    assert loaded.spec.train.warmup.steps == 100
    assert loaded.spec.train.optimizer.name == "lion"


def test_the_cluster_is_that_of_the_name():
    assert load_text(INVOICES).cluster.device_count == 8


@pytest.mark.parametrize("path", SLOTS)
def test_every_slot_can_be_pinned(path):
    for kind in kinds(SLOTS[path].type):
        value = "8.0" if (path, kind) == ("devices.capability", str) else value_of(kind)
        value = 2**30 if kind is int and SLOTS[path].unit == "bytes" else value
        loaded = load_text(INVOICES.replace("{zero.stage: 2}", json.dumps({path: value})))
        assert not loaded.diagnostics, value
        expected = (
            tuple(tuple(x) if isinstance(x, list) else x for x in value)
            if isinstance(value, list)
            else value
        )
        assert loaded.spec.pin == {path: expected}


def kinds(annotation) -> tuple:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def value_of(kind):
    if get_origin(kind) is Literal:
        return get_args(kind)[-1]
    if get_origin(kind) is tuple:
        return {str: ["x"], int: [1]}.get(get_args(kind)[0], [["A", "b"]])
    return {int: 1, float: 0.5, bool: True, str: "x", type(None): None}[kind]


def test_the_file_gives_the_name(tmp_path):
    (tmp_path / "my run (2).yaml").write_text(INVOICES.replace("name: invoices-glm4v\n", ""))
    loaded = load_spec(tmp_path / "my run (2).yaml")
    assert loaded.spec.name == "my-run-2"
    assert load_text(INVOICES.replace("name: invoices-glm4v\n", "")).spec.name == "run"


def test_files_and_digests(tmp_path):
    (tmp_path / "specs").mkdir()
    (tmp_path / ".git").mkdir()
    spec, base = tmp_path / "specs/spec.yaml", tmp_path / "base.yaml"
    base.write_text(INVOICES)
    spec.write_text("extends: ../base.yaml\nmodel: config.json\nhardware: lab.json\n")
    (tmp_path / "specs/config.json").write_text('{"model_type": "llama"}')
    cluster = load_text(INLINE).cluster.model_dump(mode="json")
    (tmp_path / "specs/lab.json").write_text(json.dumps(cluster))
    loaded = check(load_spec(spec))
    assert not loaded.diagnostics
    assert [name for name, _ in loaded.files] == [
        "spec.yaml",
        "../base.yaml",
        "config.json",
        "lab.json",
    ]
    assert dict(loaded.files)["spec.yaml"] == hashlib.sha256(spec.read_bytes()).hexdigest()
    assert loaded.cluster.name == "lab"
    assert loaded.base == tmp_path / "specs"
    assert loaded.spans["train", "epochs"].file == str(base)


def test_a_saved_config_holds_infinity_in_a_form_of_its_own(tmp_path):
    """transformers 5.23.0 saved Granite 4's `time_step_limit` so, and reads it back."""
    said = {"model_type": "llama", "limits": [0.0, {"__float__": "Infinity"}], "on": {"a": 1}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    (tmp_path / "spec.yaml").write_text(INVOICES.replace("glm-4v-9b", "./config.json"))
    loaded = load_spec(tmp_path / "spec.yaml")
    assert loaded.followed["./config.json"] == {**said, "limits": [0.0, float("inf")]}


def test_json_specs(tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(
        '{"tunec": 1, "model": "llama-3.1-8b", "method": "lora", "data": {"train": "x"},'
        ' "hardware": "a100-80g-x8"}'
    )
    assert load_spec(file).spec.name == "spec"


# ── arguments ────────────────────────────────────────────────────────────────────────────────────


def test_hardware_of_the_command_line_wins():
    loaded = load_text(INVOICES, overrides=["hardware=h200-x1"], hardware="h100-sxm-x2")
    assert loaded.spec.hardware == "h100-sxm-x2"
    assert loaded.cluster.device_count == 2
    wrong = check(load_text(INVOICES, hardware="h1000-x2"))
    assert wrong.diagnostics[0].primary.span.file == COMMAND_LINE
    assert text_of(wrong.diagnostics[0].primary.span, wrong.sources[COMMAND_LINE]) == '"h1000-x2"'


def test_hardware_as_a_path_is_relative_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "specs").mkdir()
    cluster = load_text(INLINE).cluster.model_dump(mode="json")
    (tmp_path / "here/lab.json").write_text(json.dumps(cluster))
    (tmp_path / "specs/spec.yaml").write_text(INVOICES)
    monkeypatch.chdir(tmp_path / "here")
    loaded = load_spec(Path("../specs/spec.yaml"), hardware="lab.json")
    assert not loaded.diagnostics
    assert loaded.spec.hardware == "../here/lab.json", "from the spec's directory"
    assert loaded.cluster.name == "lab"


def test_is_path(tmp_path):
    (tmp_path / "folder").mkdir()
    assert all(
        is_path(name, tmp_path) for name in ("./x", "/x", "x.json", "x.yaml", "folder", "~/x")
    )
    assert not any(is_path(name, tmp_path) for name in ("llama", "a/b", "a\0b", "x" * 9999))


# ── mappings ─────────────────────────────────────────────────────────────────────────────────────


def test_mappings():
    data = {
        "tunec": 1,
        "model": "llama-3.1-8b",
        "method": "lora",
        "data": {"train": Path("x")},
        "hardware": load_text(INLINE).cluster,
        "targets": ("deepspeed",),
    }
    loaded = check(load_mapping(data))
    assert not loaded.diagnostics
    assert loaded.spec.targets == ("deepspeed",)
    assert loaded.spec.hardware.name == "lab"


def test_a_word_that_makes_a_choice_is_said_as_the_field():
    """`{kind: lora, rank: 8}` is how others write `{lora: {rank: 8}}`."""
    spec = {"tunec": 1, "model": "llama-3.1-8b", "data": {"train": "a.jsonl"}}
    chosen = {"kind": "lora", "rank": 8, "alfa": 16, "unheard": 1}
    loaded = check(load_mapping({**spec, "method": chosen, "hardware": "a100-80g-x1"}))
    assert [fault.help for fault in loaded.diagnostics if fault.id == "E0301"] == [
        "write `lora: {...}` in its place",
        "write it at `method.lora.rank`",
        "write it at `method.lora.alpha`",
        "remove it",
    ]


@pytest.mark.parametrize(
    ("batch", "help"),
    [
        ({"effective": 8}, "write it at `batch.global`"),
        ({"total_batch_size": 8}, "write it at `batch.global`"),
        ({"everything": 8}, "write `global`, which it has alone, or remove it"),
        ({"everything": 8, "global": 8}, "remove it"),
    ],
)
def test_the_only_field_of_a_mapping_is_offered_while_it_is_not_given(batch, help):
    loaded = check(load_mapping({"tunec": 1, "batch": batch}))
    assert [fault.help for fault in loaded.diagnostics if fault.id == "E0301"] == [help]


def test_faults_of_mappings_point_into_the_data():
    loaded = check(load_mapping({"tunec": 1, "train": {"lr": 3}}))
    fault = next(each for each in loaded.diagnostics if each.id == "E0301")
    assert fault.primary.span.file == MAPPING
    assert text_of(fault.primary.span, loaded.sources[MAPPING]) == '"lr"'


def circular():
    data: dict = {}
    data["self"] = data
    return data


@pytest.mark.parametrize("data", [{"a": object()}, {(1, 2): 3}, circular()])
def test_what_is_no_data(data):
    loaded = load_mapping(data)
    assert loaded.spec is None
    assert [each.id for each in loaded.diagnostics] == ["E0112"]


# ── allowances ───────────────────────────────────────────────────────────────────────────────────


def test_allowances():
    loaded = load_text(LONG, "spec.yaml")
    first, second = loaded.allowances
    assert (first.name, first.line) == ("warmup-ignored", None)
    assert (second.name, second.reason) == ("tracker-unknown", "the cluster has one")
    assert second.line == second.span.line == LONG[: LONG.index("report_to: [ten")].count("\n") + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1 # tunec: allow(x) why", [("x", "why", 1)]),
        ("# tunec: allow(x): why\n\n# more\na: 1", [("x", "why", 4)]),
        ("a: '# tunec: allow(x) why'", []),
        ("a: |\n  # tunec: allow(x) why\nb: 1", []),
        ("a: x# tunec: allow(x) why", []),
        ("a: x #tunec:allow( x ) why", [("x", "why", 1)]),
        ("a: 'x' # text # tunec: allow(x) why", [("x", "why", 1)]),
        ("# tunec: allow(x) why", [("x", "why", 1)]),
        ("# tunec: allow() why", []),
    ],
)
def test_comments(text, expected):
    found = load_text(text, "f.yaml").allowances
    assert [(each.name, each.reason, each.line) for each in found] == expected


def test_json_has_no_comments():
    assert not load_text('{"a": "# tunec: allow(x) y"}', format="json").allowances


# ── nothing raises ───────────────────────────────────────────────────────────────────────────────


NINES = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        f"batch: {{global: '{NINES}'}}",
        f"batch: {{global: '{NINES}.5k'}}",
        f"budget: {{gpu_memory: '{NINES}GiB'}}",
        f"budget: {{gpu_memory: '{NINES}%'}}",
        f"train: {{warmup: '0.{NINES}%'}}",
        f"pin: {{zero.stage: '{NINES}'}}",
        f"pin: {{adapter.dropout: '{NINES}%'}}",
        f"pin: {{zero.stage: {NINES}}}",
        f"train: {{epochs: {NINES}.5}}",
        f"train: {{epochs: 0.{NINES}e-{NINES}}}",
        f"train: {{seed: 1e{NINES}}}",
        f"name: {NINES}x",
        f"{NINES}x: 1",
        f"pin: {{{NINES}x: 1}}",
        f"model: {NINES}x\nhardware: {NINES}x",
        f"targets: ['{NINES}@{NINES}']",
        f"software: {{x: '{NINES}'}}",
        f"--- *{NINES}",
        f"name: '${{{NINES}}}'",
    ],
)
def test_long_values_make_short_messages(text):
    loaded = check(load_text(text + "\n", targets=TARGETS))
    assert loaded.spec is None
    for each in loaded.diagnostics:
        assert len(each.message) <= 500
        assert len(terminal.render(each, loaded.sources)) < 3000


@given(st.binary(max_size=300))
def test_random_bytes(content):
    check(load_text(content))


PIECES = sorted(
    {
        *LONG.split(),
        *LONG.splitlines(),
        "- ",
        "{",
        "}",
        "[",
        "]",
        ":",
        "\n",
        "\n  ",
        "*a",
        "&a",
        "!!x",
        "'",
        '"',
        "${",
        "???",
        "<<",
        "~",
        "1e999",
        "-1",
        "NaN",
        "\t",
        "\0",
        "#",
        "extends: ",
    }
)


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_random_pieces(pieces):
    check(load_text(" ".join(pieces)))


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "way", ["delete", "double", "indent", "cut", "null", "list", "quote", "digits"]
)
def test_mangling_any_line(name, way):
    """Each line of each good spec, mangled in one way: a spec, or an error that is told."""
    lines = GOOD[name].splitlines()
    for at in range(len(lines)):
        mangled = [*lines[:at], *mangle(lines[at], way), *lines[at + 1 :]]
        check(load_text("\n".join(mangled) + "\n", targets=TARGETS))


def mangle(line: str, way: str) -> list[str]:
    key = line.partition(":")[0]
    return {
        "delete": [],
        "double": [line, line],
        "indent": [f" {line}"],
        "cut": [line[: len(line) // 2]],
        "null": [f"{key}:"],
        "list": [f"{key}: [{line.strip()!r}]"],
        "quote": [f"{key}: {json.dumps(line.partition(':')[2].strip())}"],
        "digits": [line.replace("1", "x").replace("e", "3")],
    }[way]


@given(st.sampled_from(sorted(GOOD)), st.randoms(use_true_random=False))
def test_random_edits(name, chance: random.Random):
    text = list(GOOD[name])
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(text))
        text[at : at + chance.randrange(4)] = chance.choice(
            ["", "x", ":", " ", "\n", "{", "]", "é", "0"]
        )
    check(load_text("".join(text), targets=TARGETS))


@given(
    st.lists(
        st.sampled_from(
            [
                "train.seed=1",
                "train.seed=x",
                "pin.zero.stage=9",
                "pin.zero={}",
                "x[0]=1",
                "=",
                "a=[",
                "targets[0]=x",
                "hardware=",
                "hardware=.",
                "model={}",
                "method=full",
                "method.lora.rank=0",
                "train=1",
                "data=???",
                "name=${name}",
                "name=${data.train}",
                "extends=x",
                "pin.zero.stage.reason=",
                "allow.x=",
                "train.warmup=1",
                "hardware.nodes[0].count=2",
                "software.x=1.0",
                "batch.global=1e3",
                "a.b=1\nc",
                "name=\0",
                "name=\ud800",
            ]
        ),
        max_size=5,
    )
)
def test_random_overrides(overrides):
    check(load_text(INLINE, overrides=overrides, targets=TARGETS))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = [
    "tunec",
    "name",
    "model",
    "method",
    "data",
    "hardware",
    "devices",
    "budget",
    "batch",
    "train",
    "precision",
    "attention",
    "engine",
    "launcher",
    "targets",
    "software",
    "pin",
    "allow",
    "extends",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=6))
def test_junk_in_any_field(junk):
    good = json.loads(
        json.dumps(
            load_text(INLINE).spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        )
    )
    check(load_mapping({**good, **junk}))


NESTED = [
    "model.path",
    "model.config",
    "method",
    "data.train",
    "data.images",
    "data.sequence",
    "hardware.nodes",
    "hardware.name",
    "train.warmup",
    "train.optimizer",
    "train.epochs",
    "devices",
    "pin",
    "allow",
    "software",
]


@given(st.dictionaries(st.sampled_from(NESTED), JUNK, max_size=4))
def test_junk_below_any_field(junk):
    data = load_text(INLINE).spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for path, value in junk.items():
        head, _, rest = path.partition(".")
        if rest:
            data[head] = {**data.get(head, {}), rest: value}
        else:
            data[head] = value
    check(load_mapping(data))


# ── what is loaded, and how fast ─────────────────────────────────────────────────────────────────


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(' '.join(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split())


def test_a_good_spec_needs_no_heavy_import(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(INVOICES)
    code = (
        "from pathlib import Path\nfrom tunec.compiler.frontend.load import load_spec\n"
        f"assert load_spec(Path({os.fspath(file)!r})).spec"
    )
    loaded = modules_after(code)
    heavy = {"torch", "transformers", "deepspeed", "jsonschema", "omegaconf"}
    assert not heavy & loaded


def test_a_trainers_config_is_told_once_to_be_no_spec():
    text = "base_model: a/b\nadapter: lora\nlora_r: 16\nsequence_len: 2048\n"
    (fault,) = load_text(text, "axolotl.yaml").diagnostics
    assert fault.id == "E0318"
    assert "`tunec init --from axolotl.yaml`" in (fault.help or "")


def test_a_spec_with_words_of_a_trainer_is_still_a_spec():
    text = "tunec: 1\nadapter: lora\nlora_r: 16\nsequence_len: 2048\n"
    assert "E0318" not in {each.id for each in load_text(text).diagnostics}
