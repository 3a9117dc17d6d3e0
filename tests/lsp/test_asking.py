"""What is answered at a place: completion and hover, also in a text that is half written."""

import pytest
from editor import DS, SPEC

COMPLETED = {
    "batch:\n  ‸": "global",
    "objective: {dpo: {be‸": "beta",
    "targets: [hug‸": "huggingface",
    "targets:\n  - ‸": "deepspeed",
    "targets:\n  - huggingface@4‸": "huggingface@4.40.2",
    "pin: {zero.‸": "zero.stage",
    "pin:\n  precision.compute: ‸": "bf16",
    "allow:\n  ‸": "unknown-key",
    "software:\n  tr‸": "transformers",
    "‸": "budget",
    "extends: ./‸": "./other.yaml",
}


def at(editor, file, text):
    """The labels that are offered where the text has its mark."""
    before, _, after = text.partition("‸")
    editor.edit(file, before + after)
    found = editor.ask("text_document_completion", file, position=editor.after(file, before))
    return {each.label: each for each in found or ()}


@pytest.mark.parametrize("written", COMPLETED)
def test_keys_values_and_names_are_offered(editor, written):
    (editor.root / "other.yaml").write_text("tunec: 1\n", "utf-8")
    editor.open("spec.yaml", SPEC)
    offered = at(editor, "spec.yaml", SPEC + written)
    assert COMPLETED[written] in offered
    item = offered[COMPLETED[written]]
    assert item.text_edit.new_text.startswith(COMPLETED[written])


def test_what_is_written_is_replaced_and_not_repeated(editor):
    editor.open("spec.yaml", SPEC)
    offered = at(editor, "spec.yaml", SPEC.replace("method: lora", "method: lo‸ra"))
    edit = offered["qlora"].text_edit
    assert (edit.range.start.character, edit.range.end.character) == (8, 12)
    assert "method" not in at(editor, "spec.yaml", f"{SPEC}‸")


def test_models_hardware_and_versions_come_from_the_catalogue(editor):
    editor.open("spec.yaml", SPEC)
    assert "glm-4v-9b" in at(editor, "spec.yaml", SPEC.replace("llama-3.1-8b", "gl‸"))
    assert "h100-sxm-x8" in at(editor, "spec.yaml", SPEC.replace("a100-80g-x8", "‸"))


def test_other_files_of_ours_are_completed(editor):
    editor.open("tunec.toml", "[rules]\n")
    assert "unknown-key" in at(editor, "tunec.toml", "[rules]\nun‸")
    assert set(at(editor, "tunec.toml", '[rules]\nunknown-key = "‸"')) >= {"off", "note", "warn"}
    editor.open("fleet.yaml", "fleet: 1\n")
    assert "overrides" in at(editor, "fleet.yaml", "fleet: 1\n‸")
    editor.open("policy.yaml", "policy: 1\n")
    rule = "policy: 1\nrules:\n  - name: no-fp16\n    require:\n      ‸"
    assert {"precision.compute", "memory.headroom"} <= set(at(editor, "policy.yaml", rule))


def test_keys_of_a_dialect_are_offered_where_they_belong(editor):
    editor.open("ds.json", DS)
    offered = at(editor, "ds.json", DS.replace('"cpu_offload_params"', '"off‸"'))
    assert "offload_optimizer" in offered
    assert "train_batch_size" not in offered
    assert offered["offload_optimizer"].text_edit.new_text == '"offload_optimizer"'
    editor.open(
        "training_args.yaml", "output_dir: out\nper_device_train_batch_size: 2\nbf16: true\n"
    )
    text = editor.texts["training_args.yaml"]
    assert "cosine" in at(editor, "training_args.yaml", f"{text}lr_scheduler_type: ‸")
    script = "torchrun train.py --output_dir out --per_device_train_batch_size 2 --bf16 true"
    editor.open("train.sh", script + "\n")
    assert "--learning_rate" in at(editor, "train.sh", f"{script} --lea‸\n")


def test_a_new_file_is_begun(editor):
    editor.open("new.yaml", "")
    assert set(at(editor, "new.yaml", "tu‸")) == {"tunec: 1", "fleet: 1", "policy: 1"}
    editor.type("new.yaml", "tunec: 1\n")
    assert "model" in at(editor, "new.yaml", "tunec: 1\n‸")


def hovered(editor, file, words):
    found = editor.ask("text_document_hover", file, position=editor.after(file, words))
    return found.contents.value if found is not None else ""


def test_hover_tells_the_field_and_why_it_was_decided(editor):
    editor.open("spec.yaml", SPEC + "pin: {zero.stage: 2}\n")
    method = hovered(editor, "spec.yaml", "met")
    assert "full, lora, qlora or int8_lora" in method
    assert "adapter.rank = 16: as the method says" in method
    pinned = hovered(editor, "spec.yaml", "zero.st")
    assert "0 nothing, 1 optimizer states" in pinned
    assert "zero.stage = 2\n└─ pinned" in pinned or "zero.stage = 2\n├─ pinned" in pinned
    assert hovered(editor, "spec.yaml", "tunec:") is not None


def test_hover_on_a_dialects_key_tells_what_it_decides(editor):
    editor.open("ds.json", DS)
    told = hovered(editor, "ds.json", '"stage')
    assert "sets `zero.stage`" in told
    assert "deepspeed 0." in told


def test_the_last_plan_is_told_while_a_line_is_half_written(editor):
    editor.open("spec.yaml", SPEC)
    editor.type("spec.yaml", SPEC + "batch: {global: 6")
    editor.type("spec.yaml", SPEC.replace("sequence: 2048", "sequence: x"))
    assert "adapter.rank = 16" in hovered(editor, "spec.yaml", "met")


def test_the_server_says_what_to_install(monkeypatch, capsys):
    from tunec.compiler.cli import lsp_command
    from tunec.compiler.cli.main import run
    from tunec.targets.registry import REGISTRY

    monkeypatch.setattr(lsp_command, "find_spec", lambda _: None)
    assert run(["lsp"], REGISTRY, "1") == 2
    assert "pip install 'tunec[lsp]'" in capsys.readouterr().err
