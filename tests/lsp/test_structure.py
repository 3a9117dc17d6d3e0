"""What is shown beside the text, where names lead, what can be done, and the client for VS Code."""

import json
import re
import subprocess
from pathlib import Path

from editor import DS, SPEC
from lsprotocol import types

from tunec.compiler.version import __version__

WHOLE = types.Range(types.Position(0, 0), types.Position(999, 0))


def hints(editor, file):
    found = editor.ask("text_document_inlay_hint", file, range=WHOLE)
    return {each.position.line: each.label for each in found}


def test_hints_tell_what_was_decided(editor):
    editor.open("spec.yaml", SPEC)
    told = hints(editor, "spec.yaml")
    assert told[1] == "8.03B parameters"
    assert told[2] == "rank 16, all-linear"
    assert told[4].startswith("DDP, micro 2, 55.")
    assert " of 79.1 GiB, " in told[4]
    editor.edit("spec.yaml", SPEC.replace("lora", "full").replace("x8", "x1"))
    assert hints(editor, "spec.yaml") == {4: "nothing fits"}
    editor.edit("spec.yaml", SPEC + "targets:\n  - huggingface\n  - deepspeed@0.19\n")
    assert hints(editor, "spec.yaml")[6].startswith("@5.")


def test_a_config_is_read_with_the_one_that_names_it(editor):
    (editor.root / "auto.json").write_text(DS.replace("1,", '"auto",', 1), "utf-8")
    editor.open("auto.json")
    assert hints(editor, "auto.json") == {}
    text = "output_dir: out\nper_device_train_batch_size: 4\nbf16: true\ndeepspeed: auto.json\n"
    editor.open("training_args.yaml", text)
    assert hints(editor, "auto.json") == {1: "4"}
    assert leads(editor, "training_args.yaml", "auto.j") == ["auto.json"]


def leads(editor, file, words):
    found = editor.ask("text_document_definition", file, position=editor.after(file, words))
    return [each.uri.rpartition("/")[2] for each in found]


def test_names_lead_to_their_files(editor):
    (editor.root / "base.yaml").write_text(SPEC, "utf-8")
    spec = "extends: base.yaml\nmodel: llama-3.2-3b\nhardware: dgx-h100\n"
    editor.open("mine.yaml", spec)
    assert leads(editor, "mine.yaml", "extends: ba") == ["base.yaml"]
    assert leads(editor, "mine.yaml", "model: ll") == ["llama-3.2-3b.yaml"]
    assert leads(editor, "mine.yaml", "hardware: d") == ["dgx-h100.yaml"]
    assert leads(editor, "mine.yaml", "hardw") == []
    links = editor.ask("text_document_document_link", "mine.yaml")
    assert [each.range.start.line for each in links] == [0, 1, 2]


def test_the_outline_nests_as_the_file_does(editor):
    text = SPEC + "pin:\n  zero.stage: 2\n\nrun:\n  script: a.py\n"
    editor.open("spec.yaml", text)
    symbols = editor.ask("text_document_document_symbol", "spec.yaml")
    assert [each.name for each in symbols][-2:] == ["pin", "run"]
    assert symbols[-2].children[0].name == "zero.stage"
    assert symbols[1].detail == "llama-3.1-8b"
    folds = editor.ask("text_document_folding_range", "spec.yaml")
    assert [(each.start_line, each.end_line) for each in folds] == [(5, 6), (8, 9)]
    editor.open("ds.json", DS)
    assert [e.name for e in editor.ask("text_document_document_symbol", "ds.json")][1] == (
        "zero_optimization"
    )


def offered(editor, file, **only):
    context = types.CodeActionContext(editor.problems(file), **only)
    found = editor.ask("text_document_code_action", file, range=WHOLE, context=context)
    return {each.title: each for each in found}


def applied(editor, file, action):
    """The text of a file after an action, as an editor applies it."""
    lines = editor.texts[file].splitlines(keepends=True)
    [edits] = [edits for uri, edits in action.edit.changes.items() if uri == editor.uri(file)]

    def index(place):
        return sum(map(len, lines[: place.line])) + place.character

    text = editor.texts[file]
    for edit in sorted(edits, key=lambda each: index(each.range.start), reverse=True):
        text = text[: index(edit.range.start)] + edit.new_text + text[index(edit.range.end) :]
    return text


def test_a_fix_is_an_action_and_mends_the_file(editor):
    editor.open("spec.yaml", SPEC + "batsh: {global: 8}\n")
    [action] = offered(editor, "spec.yaml").values()
    assert editor.type("spec.yaml", applied(editor, "spec.yaml", action)) == []
    assert "batch:" in editor.texts["spec.yaml"]


ARGUMENTS = "output_dir: out\nper_device_train_batch_size: 2\nbf16: true\nfp16: true\n"


def test_a_finding_is_allowed_with_a_reason(editor):
    found = editor.open("training_args.yaml", ARGUMENTS)
    [name] = {each.code for each in found}
    action = offered(editor, "training_args.yaml")[f"allow {name} here, with a reason"]
    text = applied(editor, "training_args.yaml", action)
    assert f"# tunec: allow({name}): \n" in text
    [asked] = editor.type("training_args.yaml", text)
    assert asked.code != name
    reasoned = text.replace("): \n", "): it is only an example\n")
    assert editor.type("training_args.yaml", reasoned) == []


def test_no_comment_is_put_into_a_command(editor):
    script = "torchrun train.py \\\n  --output_dir out --bf16 true \\\n  --fp16 true\n"
    assert editor.open("train.sh", script)
    assert not [title for title in offered(editor, "train.sh") if title.startswith("allow ")]


def test_all_safe_fixes_are_one_action(editor):
    text = "output_dir: out\nper_device_train_batch_size: 2\nnum_train_epochs: 3\nmax_steps: 10\n"
    assert editor.open("training_args.yaml", text)
    [action] = offered(editor, "training_args.yaml", only=["source.fixAll"]).values()
    fixed = applied(editor, "training_args.yaml", action)
    assert "num_train_epochs" not in fixed
    assert editor.type("training_args.yaml", fixed) == []


def git(folder, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_a_lens_tells_what_changed_since_the_last_commit(editor):
    folder = editor.root / "kept"
    folder.mkdir()
    (folder / "base.yaml").write_text(SPEC, "utf-8")
    (folder / "run.yaml").write_text("extends: base.yaml\n", "utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "specs")
    (folder / "base.yaml").write_text(SPEC.replace("8b", "70b"), "utf-8")
    editor.open("kept/run.yaml", "extends: base.yaml\nmodel: llama-3.1-8b\n")
    [lens] = editor.ask("text_document_code_lens", "kept/run.yaml")
    assert lens.command.title == "nothing changes since the last commit"
    editor.edit(
        "kept/run.yaml", "extends: base.yaml\nmodel: llama-3.1-8b\nmethod: {lora: {rank: 64}}\n"
    )
    [lens] = editor.ask("text_document_code_lens", "kept/run.yaml")
    assert lens.command.title.startswith("since the last commit: breaking, 3 decisions, 55.9 GiB")
    told = editor.command(lens.command)
    assert "| `adapter.rank` | 16 → 64 |" in told
    assert editor.documents[-1].endswith("changes.md")
    editor.open("spec.yaml", SPEC)
    assert not editor.ask("text_document_code_lens", "spec.yaml")


FOLDER = Path(__file__).parents[2] / "editors" / "vscode"


def test_the_extension_is_of_the_same_version_and_starts_where_it_listens():
    package = json.loads((FOLDER / "package.json").read_text("utf-8"))
    source = (FOLDER / "src/extension.js").read_text("utf-8")
    assert package["version"] == __version__
    listed = re.search(r"LANGUAGES = (\[[^\]]*\])", source)
    languages = json.loads(listed[1])
    started = {each.removeprefix("onLanguage:") for each in package["activationEvents"]}
    assert {"yaml", "json"} <= started <= set(languages)
    commands = {each["command"] for each in package["contributes"]["commands"]}
    assert all(f'registerCommand("{each}"' in source for each in commands)
    settings = package["contributes"]["configuration"]["properties"]
    assert settings["tunec.command"]["default"] == ["tunec"]
