"""What is shown of files while they are written: all faults, in every kind of file."""

from pathlib import Path

from editor import DS, SPEC, Editor
from lsprotocol import types
from tests.lints.corpus import held, text_of

from tunec.compiler.driver import plan, written
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.requirements import together
from tunec.targets.registry import TARGETS

EXAMPLES = Path(__file__).parents[2] / "examples"
OURS = {
    "spec.yaml": (SPEC.replace("lora", "lara"), "E0304"),
    "cluster.yaml": ("name: x\nnodes:\n  - accelerators: [{device: a1000, count: 8}]\n", "E0305"),
    "fleet.yaml": ("fleet: 1\nspecs: none/*.yaml\nclusters: a100-80g-x8\n", "E0314"),
    "policy.yaml": ("policy: 1\nrules: []\n", "E0306"),
    "tunec.toml": ('[rules]\nno-such-rule = "off"\n', "E0317"),
}
COLLECTED = (
    "collected.yaml",
    "collected_deepspeed.yaml",
    "collected_scripts.yaml",
    "collected_yaml_trainers.yaml",
    "collected_launch.yaml",
)


def codes(found):
    return sorted(str(each.code) for each in found)


def expected(path):
    loaded = load_spec(path, targets=TARGETS.names())
    asked = together(TARGETS.resolve, loaded.spec.targets, loaded.software)
    return sorted(each.id for each in written(plan(loaded, asked), asked).diagnostics)


def test_every_example_shows_what_the_command_finds(editor):
    specs = sorted(EXAMPLES.glob("*/spec.yaml"))
    assert len(specs) > 9
    for each in specs:
        name = str(each)
        found = editor.open(name)
        shown = {uri.rpartition("/")[2] for uri, said in editor.shown.items() if said.diagnostics}
        assert codes(found) == expected(each) or shown - {each.name}, name


def test_the_faults_of_every_kind_of_file_are_shown(editor):
    for file, (text, code) in OURS.items():
        (editor.root / file).write_text(text, "utf-8")
        assert code in codes(editor.open(file)), file
    assert codes(editor.type("spec.yaml", SPEC)) == []


def test_a_diagnostic_has_its_page_and_its_help(editor):
    found = editor.open("spec.yaml", OURS["spec.yaml"][0])
    [fault] = [each for each in found if each.code == "E0304"]
    page = Path(fault.code_description.href.removeprefix("file://"))
    assert page.read_text("utf-8").startswith("# E0304")
    assert "help: " in fault.message
    assert fault.source == "tunec"
    assert fault.severity is types.DiagnosticSeverity.Error


def test_collected_files_show_what_lint_finds(editor):
    count = 0
    for name in COLLECTED:
        every = held(name)
        cases = [each for each in every if len(each["files"]) == 1 and not each.get("arguments")]
        for at, case in enumerate(cases[:: max(len(cases) // 8, 1)]):
            [(file, data)] = case["files"].items()
            place = f"{name.removesuffix('.yaml')}/{at}/{Path(file).name}"
            (editor.root / place).parent.mkdir(parents=True, exist_ok=True)
            (editor.root / place).write_text(text_of(file, data), "utf-8")
            found = editor.open(place)
            assert case["rule"] in codes(found), (name, case["title"])
            count += 1
    assert count > 30


def test_the_text_in_the_editor_counts_and_not_what_is_saved(editor):
    base = "tunec: 1\nmodel: llama-3.1-8b\nmethod: lora\nhardware: a100-80g-x8\n"
    spec = "extends: base.yaml\ndata: {train: t.jsonl, samples: 10k, sequence: 512}\n"
    for file, text in (("base.yaml", base), ("mine.yaml", spec)):
        (editor.root / file).write_text(text, "utf-8")
    assert editor.open("mine.yaml") == []
    editor.open("base.yaml")
    editor.edit("base.yaml", base.replace("8b", "8bb"))
    editor.until(lambda: "E0305" in codes(editor.problems("base.yaml")))
    editor.edit("mine.yaml", spec.replace("base", "bace"))
    editor.until(
        lambda: "E0203" in codes(editor.problems("mine.yaml")) or bool(editor.problems("mine.yaml"))
    )


def test_a_half_written_file_ends_nothing(editor):
    editor.open("spec.yaml", SPEC)
    for file, text in (("spec.yaml", SPEC), ("ds.json", DS)):
        editor.open(file, text)
        for end in range(0, len(text), 7):
            editor.type(file, text[:end])
        for odd in ("\x00", "a: &a [*a]\n", "{" * 500, "tunec: [", "?\n- :\n", "💥: {"):
            editor.type(file, odd)
        editor.type(file, text)
    assert codes(editor.problems("spec.yaml")) == []
    assert "unknown-key" in codes(editor.problems("ds.json"))


def test_files_of_no_concern_stay_silent(editor):
    texts = {
        "compose.yaml": "services:\n  web:\n    image: nginx\n",
        "ci.yaml": "jobs: {test: {steps: [{run: pytest}]}}\nextends: x\n",
        "kind.yaml": "kind: Cluster\nname: x\nnodes:\n- role: worker\n",
        "graph.json": '{\n  "name": "g",\n  "nodes": []\n}',
        "tsconfig.json": '{\n  "extends": "./base.json",\n  "files": []\n}',
        "renovate.json": '{\n  "extends": ["config:base"]\n}',
        "fleet.yaml": "fleet: {name: rancher}\n",
        "package.json": '{"name": "x", "dependencies": {"a": "1"}}',
        "notes.py": "print('model')\n",
        "run.sh": "echo hello\n",
        "broken.yaml": "a: [\n",
    }
    for file, text in texts.items():
        assert editor.open(file, text) == [], file


def test_what_is_closed_shows_nothing(editor):
    assert editor.open("spec.yaml", OURS["spec.yaml"][0])
    editor.close("spec.yaml")
    editor.until(lambda: editor.problems("spec.yaml") == [])


def test_columns_are_counted_as_the_editor_does(editor, tmp_path):
    text = SPEC.replace("train: train.jsonl", 'train: "💥💥", trian: 1')
    [fault] = [each for each in editor.open("spec.yaml", text) if each.code == "E0301"]
    assert fault.range.start == types.Position(3, 22)
    other = Editor(tmp_path, ["utf-8"])
    [fault] = [each for each in other.open("spec.yaml", text) if each.code == "E0301"]
    assert fault.range.start == types.Position(3, 26)
    assert other.leave() == 0
