"""Launch scripts to documents: what the script says, where it says it, and what it does not say."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import rows, table, tuples

from tunec.compiler.frontend.nodes import plain, walk
from tunec.compiler.frontend.shell_flags import Unknown
from tunec.compiler.frontend.shell_nodes import ShellDocument, looks_like_shell, read_script
from tunec.compiler.frontend.text import MAX_BYTES
from tunec.schemas.source import text_of

TABLES = table(__file__)

QUOTING = set("$`'\"\\+")
"""Characters that make a word differ from what it is written as; `A+=x` adds to what `A` holds."""


def documents(text: str, kind: str) -> list[ShellDocument]:
    return [each for each in read_script(text, "train.sh") if each.kind == kind]


def flags(text: str):
    (found,) = documents(text, "flags")
    return plain(found.node)


def launcher(text: str):
    (found,) = documents(text, "launcher")
    return plain(found.node)


# ── words ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(*rows(__file__, "test_flags_are_typed_by_how_they_look"))
def test_flags_are_typed_by_how_they_look(written, read):
    assert flags(f"python train.py {written}\n") == read


@pytest.mark.parametrize(*rows(__file__, "test_variables_with_literal_values_are_put_in"))
def test_variables_with_literal_values_are_put_in(before, written, value):
    assert flags(f"{before}\npython train.py --x {written}\n") == {"x": value}


@pytest.mark.parametrize(*rows(__file__, "test_what_only_running_would_tell_is_never_guessed"))
def test_what_only_running_would_tell_is_never_guessed(before, written):
    (found,) = documents(f"{before}\npython train.py --x {written} --y 1\n", "flags")
    assert isinstance(found.node.child("x").value, Unknown)
    assert [each.path for each in found.unknown] == [("x",)]
    assert plain(found.node)["y"] == 1


def test_an_alternative_that_is_a_flag_hides_that_flag_alone():
    """Not the count of processes, which another word could set."""
    text = (
        'P=$((RANDOM % 9))\ntorchrun --nproc_per_node=2 ${P:+--master_port="$P"} train.py --x 1\n'
    )
    (found,) = documents(text, "launcher")
    assert [each.path for each in found.unknown] == [("master_port",), ("flags", "master_port")]


def test_loop_over_several_values_is_not_known():
    (found,) = documents("for LR in 1 2; do python t.py --lr $LR; done", "flags")
    assert isinstance(found.node.child("lr").value, Unknown)
    assert flags("for LR in 1; do python t.py --lr $LR; done") == {"lr": 1}


def test_variables_and_arrays_of_flags_are_divided():
    text = """
ARGS="--bf16 True --lr $LR"
MORE=(--report_to wandb)
MORE+=("--run_name" "a b")
torchrun $WORLD --nproc_per_node 8 train.py $ARGS "${MORE[@]}"
"""
    (found,) = documents("LR=1" + text, "flags")
    expected = {"bf16": True, "lr": 1, "report_to": "wandb", "run_name": "a b"}
    assert plain(found.node) == expected


def test_places_of_divided_words_are_in_the_assignment():
    text = 'LR=1e-5\nARGS="--bf16 True --lr $LR"\npython train.py $ARGS --x=2\n'
    (found,) = documents(text, "flags")
    bf16, lr, x = (found.node.child(name) for name in ("bf16", "lr", "x"))
    assert (bf16.key_span.line, bf16.key_span.column, bf16.span.column) == (2, 7, 14)
    assert (lr.key_span.line, lr.span.line, lr.span.column) == (2, 1, 4)
    assert (text_of(x.key_span, text), text_of(x.span, text)) == ("--x", "2")


# ── launchers ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(*rows(__file__, "test_launching_commands_are_found"))
def test_launching_commands_are_found(command, found):
    said = launcher(f"{command}\n")
    assert {key: said.get(key) for key in found} == found


@pytest.mark.parametrize("text", TABLES["test_nothing_else_is_taken_for_one"])
def test_nothing_else_is_taken_for_one(text):
    assert documents(text, "launcher") == []


def test_slurm_and_the_command_that_it_starts():
    text = "srun --nodes 2 --ntasks-per-node=1 torchrun --nproc_per_node 8 t.py --a 1\n"
    outer, inner = documents(text, "launcher")
    assert (outer.program, inner.program, outer.command) == ("srun", "torchrun", inner.command)
    assert plain(outer.node)["nodes"] == 2
    assert flags(text) == {"a": 1}


def test_environment_of_a_command():
    text = (
        "export A=1\nB=2\nC=3 CUDA_VISIBLE_DEVICES=0,1 python t.py --x 1\nD=4 python u.py --y 1\n"
    )
    first, second = documents(text, "launcher")
    assert plain(first.node)["environment"] == {"A": "1", "C": "3", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert plain(second.node)["environment"] == {"A": "1", "D": "4"}
    node = first.node.child("environment").child("CUDA_VISIBLE_DEVICES")
    assert (text_of(node.key_span, text), text_of(node.span, text)) == (
        "CUDA_VISIBLE_DEVICES",
        "0,1",
    )


def test_batch_options_of_slurm():
    text = "#!/bin/bash\n#SBATCH --nodes=2 -c8\n#SBATCH --gres gpu:8 # all\n#SBATCH -t 02:00:00\n"
    (found,) = documents(text, "slurm")
    expected = {"nodes": 2, "cpus_per_task": 8, "gres": "gpu:8", "time": "02:00:00"}
    assert plain(found.node) == expected


def test_a_file_of_assignments_is_an_environment():
    text = "# simpletuner\nexport TRAINING_NUM_PROCESSES=2\nMIXED_PRECISION='bf16'\n"
    (found,) = read_script(text, "config.env")
    expected = {"TRAINING_NUM_PROCESSES": "2", "MIXED_PRECISION": "bf16"}
    assert (found.kind, plain(found.node)) == ("environment", expected)


# ── whose flags, and which files ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "dialect"),
    [
        ("python t.py --per_device_train_batch_size 1", "huggingface"),
        ("python t.py --bf16 True --lr_scheduler_type cosine", "huggingface"),
        ("python run_no_trainer.py --per_device_train_batch_size 1", "script"),
        ("accelerate launch swift/cli/sft.py --per_device_train_batch_size 1", "ms-swift"),
        ("accelerate launch swift/cli/pt.py --per_device_train_batch_size 1", "script"),
        ("python t.py --stage sft --finetuning_type lora --bf16 True", "llamafactory"),
        ("python train.py --model_family flux --data_backend_config x.json", "simpletuner"),
        ("python -m trl.scripts.sft --learning_rate 1", "trl"),
        ("python diffusers.py --train_batch_size 1 --output_dir x", None),
    ],
)
def test_dialect_is_known_by_its_flags(command, dialect):
    (found,) = documents(command, "flags")
    assert found.dialect == dialect


@pytest.mark.parametrize(*rows(__file__, "test_named_files_are_references"))
def test_named_files_are_references(command, references):
    found = [each for one in read_script(command, "t.sh") for each in one.references]
    assert [(each.path, each.file, each.reader) for each in found] == [*tuples(references)]


def test_overrides_of_llamafactory_are_flags():
    (found,) = documents("llamafactory-cli train c.yaml learning_rate=1e-5 odd", "flags")
    assert plain(found.node) == {"learning_rate": 1e-5}
    assert [text for text, _ in found.loose] == ["odd"]


@pytest.mark.parametrize("command", ["swift sft", "swift rlhf", "torchrun -m swift.cli.sft"])
def test_flags_of_ms_swift_are_its_own(command):
    """They share names with the Trainer's, whose defaults are others."""
    script = f"{command} --model m --dataset a/b c/d --learning_rate 1e-5"
    (found,) = documents(script, "flags")
    assert found.dialect == "ms-swift"
    assert plain(found.node) == {"model": "m", "dataset": ["a/b", "c/d"], "learning_rate": 1e-5}


@pytest.mark.parametrize(*rows(__file__, "test_scripts_are_known_by_their_content"))
def test_scripts_are_known_by_their_content(text, is_shell):
    assert looks_like_shell(text) is is_shell


# ── any text at all ──────────────────────────────────────────────────────────────────────────────

PIECES = st.sampled_from(
    [
        *("deepspeed ", "torchrun ", "accelerate launch ", "python ", "-m ", "srun ", "x.py "),
        *("--a ", "--b=1 ", "--no_c ", "\\\n", "\n", "\r\n", "'", '"', "$X", "${X:-", "}", "$("),
        *("`", "((", "))", "(", ")", "A=", "A+=", "B=$A$A", "A=(x y)\n", '"${A[@]}"', "$A "),
        *("if ", "then ", "else ", "fi ", "for i in ", "do ", "done ", "{ ", "export ", "eval "),
        *("bash -c ", "#SBATCH -N", "<<E\n", "E\n", "&&", "||", ";", "|", "\0", "\x85", "é"),
        *("5e-5 ", "1 ", "#", "$", "\\", "case ", "esac ", "\u2028", ">", "2>&1 ", "unset ", "="),
    ]
)
SCRIPTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200))


@given(SCRIPTS)
def test_no_text_raises_and_places_give_the_words_back(text):
    looks_like_shell(text)
    for document in read_script(text, "f"):
        for _, node in walk(document.node):
            if node.written is not None:
                there = text_of(node.span, text)
                assert there == node.written or QUOTING & set(there)
        for each in document.unknown:
            assert each.written


@pytest.mark.parametrize(
    "text",
    [
        "$(" * 500_000,
        "${" * 500_000,
        "if\n" * 300_000,
        "(\n" * 500_000,
        "((" * 500_000,
        "eval " * 200_000,
        "<<E\n" * 250_000,
        "'" * 1_000_000,
        "\\" * 1_000_000,
        "A=x\n" + "A=$A$A\n" * 100_000,
        "".join(f"V{n}=1\nif\n" for n in range(80_000)),
        "A+=(x)\n" * 140_000,
        "X=" + "y " * 30_000 + "\n" + "deepspeed $X\n" * 60_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_text_is_read_in_time(text):
    begun = time.process_time()
    read_script(text[:MAX_BYTES], "f")
    assert time.process_time() - begun < 10


def test_a_text_that_is_too_large_gives_nothing():
    assert read_script("A=1\n" * MAX_BYTES, "f") == ()


COMPOSED = """\
HYDRA_FULL_ERROR=1 python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.rollout.n=8 \\
    ++actor_rollout_ref.actor.optim.lr=1e-6 \\
    trainer.logger='["console","wandb"]' \\
    +trainer.note="'two words'" \\
    trainer.resume_from_path=null \\
    data.train_files=$HOME/train.parquet \\
    ~data.seed $@
"""


def test_words_of_hydra_are_the_document_that_they_say():
    (_, found) = read_script(COMPOSED, "train.sh")
    assert (found.dialect, found.program) == ("verl", "verl.trainer.main_ppo")
    said = plain(found.node)
    unknown = said["data"].pop("train_files")
    assert unknown.reason
    assert said == {
        "algorithm": {"adv_estimator": "grpo"},
        "actor_rollout_ref": {"rollout": {"n": 8}, "actor": {"optim": {"lr": 1e-6}}},
        "trainer": {"logger": ["console", "wandb"], "note": "two words", "resume_from_path": None},
        "data": {},
    }
    key = found.node.child("actor_rollout_ref").child("rollout").child("n").key_span
    assert (key.line, key.column) == (4, 5)
    assert [text for text, _ in found.loose] == ["~data.seed"]


def test_a_file_that_is_composed_is_named_and_words_over_it_are_no_file_of_verl():
    text = "python -m verl.trainer.main_ppo --config-dir conf --config-name run a.b=1\n"
    (_, found) = read_script(text, "train.sh")
    assert [each.file for each in found.references] == ["conf/run.yaml"]
    assert found.dialect == "verl-over"
    assert plain(found.node) == {"a": {"b": 1}}


@pytest.mark.parametrize("config", ["", "--config-path=config --config-name=ppo_trainer.yaml"])
def test_verls_own_file_lies_under_words_that_name_no_other(config):
    text = f"python -m verl.trainer.main_ppo {config} a.b=1\n"
    (_, found) = read_script(text, "train.sh")
    assert found.dialect == "verl"
    assert not found.references


@pytest.mark.parametrize(
    ("test", "first", "second"),
    [
        ('[ "$N" -gt 1 ]', None, 1),
        ("[[ $N -eq 1 && $M -eq 2 ]]", 1, None),
        ("[ $N == 4 ]", None, 1),
        ("[ -n $OTHER ]", 1, 1),
        ("[ $N -gt $OTHER ]", 1, 1),
    ],
)
def test_a_way_that_the_value_as_written_does_not_take_has_another_value(
    test: str, first: int | None, second: int | None
) -> None:
    start = "python a.py --x $N --y 1"
    text = f"N=1\nM=2\nif {test}; then\n  {start}\nelse\n  {start}\nfi\n{start}\n"
    values = [each.node.child("x").value for each in documents(text, "flags")]
    assert [None if isinstance(each, Unknown) else each for each in values] == [first, second, 1]
