"""Every command of SKILL.md does what is said, in the order in which it is said."""

import re
import shlex
from pathlib import Path

import yaml
from tests.cli.shell import Shell
from tests.review.test_diff_of_files import DEEPSPEED, TRAIN, git

SKILL = (Path(__file__).parents[2] / "SKILL.md").read_text("utf-8")


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", SKILL, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_the_head_names_and_describes_it():
    head = yaml.safe_load(SKILL.split("---\n")[1])
    assert head["name"] == "tunec"
    assert 100 < len(head["description"]) < 1024


def test_commands_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(TRAIN, "utf-8")
    (tmp_path / "ds_config.json").write_text(DEEPSPEED, "utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    every = commands()
    assert len(every) > 8
    for command in every:
        assert command[0] == "tunec"
        done = Shell(capsys)(*command[1:])
        assert done.code == 0, (command, done)
    assert (tmp_path / "out/huggingface/training_args.yaml").is_file()
    assert (tmp_path / "translated").is_dir()
