"""The engine: what is read, who wins, what is hidden, what is mended, and how it is told."""

import json
from pathlib import Path

import pytest
from tests.lints.lint_asking import lint
from tests.tables import rows, table

import tunec
from tunec.compiler.lints.edits import apply
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.lint import lint_texts
from tunec.targets.registry import TARGETS

TABLES = table(__file__)

DS = '{\n  "train_micro_batch_size_per_gpu": "auto",\n  "bf16": {"enabled": "auto"}\n}\n'
READABLE = TARGETS.readable()


def _run(texts: dict[str, str], **known: object):  # type: ignore[no-untyped-def]
    return lint_texts(texts, READABLE, Environment(**known)).run  # type: ignore[arg-type]


@pytest.mark.parametrize(*rows(__file__, "test_a_file_is_told_by_its_content"))
def test_a_file_is_told_by_its_content(name: str, text: str, kind: str) -> None:
    kinds = [document.kind for document in _run({name: text}).documents]
    assert kind in kinds


def test_auto_is_filled_by_the_trainer_and_dropped_by_plain_deepspeed() -> None:
    args = "output_dir: out\nper_device_train_batch_size: 3\nbf16: true\n"
    filled = _run({"ds.json": DS, "args.yaml": args})
    micro = filled.effective("deepspeed", "train_micro_batch_size_per_gpu")
    assert (micro.value, micro.source) == (3, "filled")
    assert filled.effective("deepspeed", "bf16.enabled").value is True
    plain = _run({"ds.json": DS}, readers=("deepspeed",))
    assert plain.effective("deepspeed", "bf16.enabled").value is False
    nobody = _run({"ds.json": DS})
    assert not nobody.effective("deepspeed", "bf16.enabled").known


def test_an_absent_key_is_the_default_of_the_release() -> None:
    old = _run({"ds.json": DS}, software={"deepspeed": "0.18.2"})
    new = _run({"ds.json": DS}, software={"deepspeed": "0.19.8"})
    assert old.effective("deepspeed", "gradient_clipping").value == 0.0
    assert new.effective("deepspeed", "gradient_clipping").value == 1.0


def test_processes_are_told_by_the_command_line_before_the_launcher_before_the_hardware() -> None:
    file = {"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\n"}
    world = _run(file).world
    assert world is not None
    assert world.value == 4
    asked = _run(file, world=2).world
    assert asked is not None
    assert asked.value == 2
    assert _run({"args.yaml": "output_dir: out\n"}).world is None


def test_a_view_has_the_places_of_its_file() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
    stage = _run({"acc.yaml": text}).effective("deepspeed", "zero_optimization.stage")
    assert stage.value == 3
    assert stage.place is not None
    assert stage.place.path == "deepspeed_config.zero_stage"
    assert (stage.place.span.file, stage.place.span.line) == ("acc.yaml", 3)


def test_a_value_that_only_the_shell_knows_is_unknown() -> None:
    text = "#!/bin/bash\ntorchrun train.py --output_dir o --bf16 True --learning_rate $LR\n"
    run = _run({"train.sh": text})
    assert run.effective("trainer", "bf16").value is True
    assert not run.effective("trainer", "learning_rate").known


@pytest.mark.parametrize("text", TABLES["test_no_content_raises"])
def test_no_content_raises(text: str) -> None:
    for name in ("a.json", "a.yaml", "a.toml", "a.sh", "a"):
        lint_texts({name: text}, READABLE, Environment(world=2))


def test_a_comment_allows_a_finding_with_its_reason(tmp_path: Path) -> None:
    files = {
        "a.yaml": "output_dir: o\nfp16: true  # tunec: allow(fp16-and-bf16): a test\nbf16: true\n"
    }
    assert lint(tmp_path, files, ["a.yaml"]).names == []
    no_reason = {"a.yaml": files["a.yaml"].replace(": a test", "")}
    assert lint(tmp_path, no_reason, ["a.yaml"]).names == ["E0311"]
    unused = {"a.yaml": "output_dir: o  # tunec: allow(fp16-and-bf16): a test\n"}
    assert lint(tmp_path, unused, ["a.yaml"]).names == ["unused-allowance"]


def test_allow_on_the_command_line(tmp_path: Path) -> None:
    files = {"a.yaml": "output_dir: o\nfp16: true\nbf16: true\n"}
    assert lint(tmp_path, files, ["a.yaml", "--allow", "fp16-and-bf16"]).names == []
    wrong = lint(tmp_path, files, ["a.yaml", "--allow", "fp16-and-bf"])
    assert wrong.code == 2
    assert "did you mean `fp16-and-bf16`?" in wrong.err


def test_a_baseline_hides_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    files = {"a.yaml": "output_dir: o\nfp16: true\nbf16: true\n"}
    flags = ["a.yaml", "--baseline", "base.json"]
    assert lint(tmp_path, files, [*flags, "--write-baseline", "--format", "text"]).code == 0
    assert lint(tmp_path, files, flags).names == []
    moved = {"a.yaml": "# a comment\n\n" + files["a.yaml"] + "eval_strategy: no\n"}
    assert lint(tmp_path, moved, flags).names == ["no-read-as-false"]
    broken = lint(tmp_path, {"base.json": "{"}, flags)
    assert broken.code == 2


def test_fixes_leave_the_rest_of_the_file_alone(tmp_path: Path) -> None:
    text = '# mine\noutput_dir:   "o"   # here\neval_strategy: no   # none\n\nlearning_rate: 1e-4\n'
    answer = lint(tmp_path, {"a.yaml": text}, ["a.yaml", "--fix"])
    assert answer.names == []
    mended = text.replace("eval_strategy: no ", 'eval_strategy: "no" ').replace("1e-4", "0.0001")
    assert (tmp_path / "a.yaml").read_text("utf-8") == mended


@pytest.mark.parametrize(
    ("script", "mended"),
    [
        ("x.py --evaluation_strategy steps {}", "x.py --eval_strategy steps {}"),
        ("x.py --evaluation-strategy=steps {}", "x.py --eval-strategy=steps {}"),
        ("x.py {} --num_train_epochs 3 # n", "x.py {} # n"),
        ("x.py {} \\\n  --num_train_epochs 3\necho done", "x.py {}\necho done"),
        ("x.py {} \\\n  --num_train_epochs=3 \\\n  --seed 1", "x.py {} \\\n  --seed 1"),
        ("x.py {} --num_train_epochs $N --seed 1", "x.py {} --seed 1"),
    ],
)
def test_a_mended_command_is_still_one(script: str, mended: str, tmp_path: Path) -> None:
    rest = "--output_dir o --max_steps 9 --eval_steps 3 --per_device_train_batch_size 1"
    texts = [f"N=3\npython {each.format(rest)}\n" for each in (script, mended)]
    asked = ["a.sh", "--fix", "--software", "transformers=5.0.0"]
    lint(tmp_path, {"a.sh": texts[0]}, asked)
    assert (tmp_path / "a.sh").read_text("utf-8") == texts[1]
    again = lint(tmp_path, {}, asked)
    assert (tmp_path / "a.sh").read_text("utf-8") == texts[1], again.names


def test_edits_that_touch_one_another_are_made_one_at_a_time() -> None:
    text = '{"bf16": {"enabled": true, "loss_scale": 0, "hysteresis": 2}}'
    found = lint_texts({"a.json": '{"train_batch_size": 1, ' + text[1:]}, READABLE)
    fixes = [each.fix.edits for each in found.diagnostics if each.fix]
    assert len(fixes) == 2
    once = apply(found.sources, fixes)["a.json"]
    assert json.loads(once)


def test_exit_codes_by_severity(tmp_path: Path) -> None:
    warned = {"a.yaml": "output_dir: o\ndeepspeed: gone.json\n"}
    assert lint(tmp_path, warned, ["a.yaml"]).code == 0
    assert lint(tmp_path, {}, ["a.yaml", "--fail-on", "warning"]).code == 1
    assert lint(tmp_path, {}, ["gone.yaml"]).names == ["E0201"]
    assert lint(tmp_path, {}, ["a.yaml", "--hardware", "nothing-x1"]).code == 2
    assert lint(tmp_path, {}, ["a.yaml", "--from", "deepsped"]).code == 2
    assert lint(tmp_path, {}, ["a.yaml", "--software", "transformers"]).code == 2


def test_the_order_is_stable(tmp_path: Path) -> None:
    files = {
        "a.yaml": "output_dir: o\nfp16: true\nbf16: true\neval_strategy: no\n",
        "b.json": '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 3, "stage": 1}',
    }
    one = lint(tmp_path, files, ["a.yaml", "b.json"])
    other = lint(tmp_path, files, ["b.json", "a.yaml"])
    assert one.out == other.out


def test_sarif_has_the_page_of_each_rule_and_github_one_line_each(tmp_path: Path) -> None:
    files = {"a.yaml": "output_dir: o\nfp16: true\nbf16: true\n"}
    sarif = json.loads(lint(tmp_path, files, ["a.yaml", "--format", "sarif"]).out)
    rules = sarif["runs"][0]["tool"]["driver"]["rules"]
    assert [each["id"] for each in rules] == ["fp16-and-bf16"]
    assert rules[0]["help"]["markdown"].startswith("# fp16-and-bf16")
    github = lint(tmp_path, files, ["a.yaml", "--format", "github"]).out
    assert github.startswith("::error file=a.yaml,line=2")


def test_the_library_returns_what_the_command_prints(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.yaml"
    path.write_text("output_dir: o\nfp16: true\nbf16: true\n", "utf-8")
    found = tunec.lint(path)
    assert [each.id for each in found.diagnostics] == ["fp16-and-bf16"]
    assert not found.ok
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ValueError, match="nothing-x1"):
        tunec.lint(path, hardware="nothing-x1")


def test_references_are_followed_from_the_file_that_names_them(tmp_path: Path) -> None:
    files = {
        "run/args.yaml": "output_dir: o\ndeepspeed: conf/ds.json\n",
        "conf/ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 9}}',
    }
    answer = lint(tmp_path, files, ["run/args.yaml"])
    assert "value-out-of-range" in answer.names
    assert any(each["labels"][0]["file"].endswith("ds.json") for each in answer.findings)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (">=5", True),
        (">=5.1", None),
        ("<5", False),
        ("<4.46", False),
        ("<6", None),
        ("==5.0", None),
    ],
)
def test_a_key_that_came_with_a_release_tells_of_it(asked, told):
    """`train_sampling_strategy` is in transformers 5.6 and not in 5.0 (schemas/json)."""
    from tunec.compiler.consumers.schemas import class_schema

    key = "train_sampling_strategy"
    fields = [class_schema("training_arguments", each)["properties"] for each in ("5.0.0", "5.6.2")]
    assert [key in each for each in fields] == [False, True]
    files = {"training_args.yaml": f"output_dir: out\n{key}: group_by_length\n"}
    run = _run(files)
    assert not run.release("transformers").is_named
    assert run.runs(f"transformers{asked}") is told


@pytest.mark.parametrize(*rows(__file__, "test_only_a_program_that_runs_says_what_goes_with_it"))
def test_only_a_program_that_runs_says_what_goes_with_it(name, text, named, package, taken):
    run = _run({name: text}, software=named)
    assert str(run.release(package).version) == taken
    assert not run.release(package).is_named


@pytest.mark.parametrize("release", ["0.21.0", "0.13.0", "1.5.0"])
def test_a_release_between_those_that_are_known_is_no_fault(release, tmp_path):
    """transformers 4.55.4 goes with TRL 0.21, and no table of fields is kept for it."""
    texts = {"grpo.yaml": "model_name_or_path: m\noutput_dir: out\nnum_generations: 8\nbeta: 0.1\n"}
    answer = lint(tmp_path, texts, ["grpo.yaml", "--software", f"trl={release}"])
    assert answer.code in (0, 1)
    assert isinstance(answer.findings, list)
