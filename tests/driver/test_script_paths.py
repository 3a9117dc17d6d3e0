"""A script that names files by paths that its start loses is told of; others are not."""

import json

import pytest

from tunec.compiler.bundle import Outset
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.targets.registry import REGISTRY

ID = "script-paths-elsewhere"
TRAINED = "rows/train.jsonl"


def told(folder, text, spec="..", script="mine/train.py"):
    """What compiling says of a script in a project with data."""
    data = {"train": TRAINED, "samples": 5000, "sequence": 1024}
    said = {"tunec": 1, "model": "llama-3.2-1b", "method": "full", "data": data}
    run = {"run": {"script": script, "arguments": ["huggingface/training_args.yaml"]}}
    for name, content in {script: text, TRAINED: "{}", "mine/held.jsonl": "{}"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    (folder / "spec.json").write_text(json.dumps({**said, **run, "hardware": "h100-80g-x1"}))
    asked = [REGISTRY.resolve("huggingface")]
    found = compile_spec(
        load_spec(folder / "spec.json"), asked, Outset(spec, REGISTRY.resolve("launch"))
    )
    return [each.message for each in found.diagnostics if each.id == ID]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f'load_dataset("json", data_files="{TRAINED}")', TRAINED),
        (f'load_dataset("json", data_files={{"train": ["./{TRAINED}"]}})', f"./{TRAINED}"),
        ('open("held.jsonl")', "held.jsonl"),
        ('open("../rows/train.jsonl")', "../rows/train.jsonl"),
    ],
)
def test_a_path_that_holds_from_the_project_or_the_script_is_named(tmp_path, text, named):
    assert told(tmp_path, text) == [
        f"mine/train.py names {named}, and run.sh starts it in the bundle's folder"
    ]


@pytest.mark.parametrize(
    "text",
    [
        'load_dataset("json", data_files="nowhere/train.jsonl")',
        f'open(Path(__file__).parent / "{TRAINED}")',
        f'open(os.path.join(HERE, "{TRAINED}"))',
        f'parser.add_argument("--data", default="{TRAINED}")',
        'AutoModel.from_pretrained("rows")',
        "load(sys.argv[1])",
        "def broken(:",
        'open("/etc/passwd"); open("../../../etc/passwd")',
    ],
)
def test_what_may_hold_is_left_alone(tmp_path, text):
    assert told(tmp_path, text) == []


def test_a_bundle_in_the_folder_of_the_spec_loses_nothing(tmp_path):
    text = f'open("{TRAINED}")'
    assert told(tmp_path, text, spec=".") == []
    assert told(tmp_path, text, spec="..")
