"""The releases that a repository requires: read from its files, nearest first, never outside."""

from pathlib import Path

import pytest
from packaging.version import Version
from tests.lints.lint_asking import Answer, lint
from tests.tables import rows, table

from tunec.compiler.lints.requirement_files import rank_of, stated
from tunec.compiler.releases import Releases

TABLES = table(__file__)

ARGUMENTS = """\
output_dir: out
learning_rate: 1.0e-5
per_device_train_batch_size: 2
evaluation_strategy: steps
eval_steps: 100
"""
OLD = "transformers 4.44.2"


def asked(folder: Path, files: dict[str, str], *arguments: str, at: str = "args.yaml") -> Answer:
    (folder / ".git").mkdir(exist_ok=True)
    return lint(folder, {**files, at: ARGUMENTS}, [at, *arguments])


def told(answer: Answer) -> list[tuple[str, str]]:
    return [
        (each["severity"], each["message"])
        for each in answer.findings
        if each["id"] == "key-of-another-release"
    ]


FORMS = TABLES["FORMS"]


@pytest.mark.parametrize("name", FORMS)
def test_a_release_is_read_with_its_line(name: str, tmp_path: Path) -> None:
    text, line = FORMS[name]
    answer = asked(tmp_path, {name: text})
    assert told(answer) == [("error", "transformers 4.57.1 has no key `evaluation_strategy`")]
    place = f"transformers 4.57.1: {name}:{line}"
    assert any(place in note for each in answer.findings for note in each["notes"])
    assert f"releases: transformers 4.57.1 ({name}:{line})" in answer.err


@pytest.mark.parametrize("name", FORMS)
def test_the_key_is_sound_in_a_release_that_has_it(name: str, tmp_path: Path) -> None:
    answer = asked(tmp_path, {name: FORMS[name][0].replace("4.57.1", "4.44.2")})
    assert told(answer) == []
    assert OLD in answer.err


def test_without_a_release_there_is_one_note_for_the_file(tmp_path: Path) -> None:
    more = {"args.yaml": ARGUMENTS + "no_cuda: false\nwarmup_ratio: 0.1\n"}
    (tmp_path / ".git").mkdir()
    answer = lint(tmp_path, more, ["args.yaml"])
    assert [severity for severity, _ in told(answer)] == ["note"]
    assert "`evaluation_strategy`, `no_cuda`, `warmup_ratio`" in told(answer)[0][1]
    assert answer.code == 0


def test_keys_that_no_release_has_together_are_wrong_in_any(tmp_path: Path) -> None:
    text = ARGUMENTS + "train_sampling_strategy: group_by_length\n"
    answer = lint(tmp_path, {"args.yaml": text}, ["args.yaml"])
    names = "`evaluation_strategy`, `train_sampling_strategy`"
    assert told(answer) == [("warning", f"no known release of transformers has all of {names}")]


@pytest.mark.parametrize(
    ("required", "is_told"),
    [
        (">=4.40", False),
        (">=4.51", True),
        (">=4.40,<5", False),
        ("~=4.44.0", False),
        ("~=5.0", True),
        ("<4.46", False),
        (">4.51.3", True),
        ("==4.44.*", False),
    ],
)
def test_in_a_range_only_what_is_wrong_in_all_of_it_is_told(
    required: str, is_told: bool, tmp_path: Path
) -> None:
    answer = asked(tmp_path, {"requirements.txt": f"transformers{required}\n"})
    expected = [("error", f"transformers{required} has no key `evaluation_strategy`")]
    assert told(answer) == (expected if is_told else [])
    words = asked(tmp_path, {"requirements.txt": ""}, "--software", f"transformers{required}")
    assert told(words) == told(answer)


def test_the_nearest_folder_holds_and_the_command_line_wins(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "transformers==4.44.2\n",
        "new/requirements.txt": "transformers==5.0.0\n",
    }
    below = asked(tmp_path, files, at="new/args.yaml")
    assert told(below) == [("error", "transformers 5.0.0 has no key `evaluation_strategy`")]
    assert told(asked(tmp_path, files, at="old/args.yaml")) == []
    assert told(asked(tmp_path, files, "--software", "transformers=4.42", at="new/args.yaml")) == []


def test_nothing_outside_of_the_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==5.0.0\n", "utf-8")
    inner = tmp_path / "repository"
    inner.mkdir()
    (inner / "requirements-link.txt").symlink_to(tmp_path / "requirements.txt")
    answer = asked(inner, {"requirements_up.txt": "-r ../requirements.txt\n"})
    assert [severity for severity, _ in told(answer)] == ["note"]
    assert "5.0.0" not in answer.out + answer.err


def test_a_lock_is_believed_before_a_readme_and_a_range_is_made_exact(tmp_path: Path) -> None:
    files = {
        "README.md": "pip install transformers==5.0.0\n",
        "requirements.txt": "transformers>=4.40\n",
        "uv.lock": '[[package]]\nname = "transformers"\nversion = "4.44.2"\n',
    }
    assert "transformers 4.44.2 (uv.lock:2)" in asked(tmp_path, files).err
    (tmp_path / "uv.lock").unlink()
    del files["uv.lock"]
    assert "transformers 5.0.0 (README.md:1)" in asked(tmp_path, files).err
    files["requirements.txt"] = "transformers>=4.40,<5\n"
    assert "transformers>=4.40,<5 (requirements.txt:1)" in asked(tmp_path, files).err


def test_what_a_trainer_installs_holds_inside_its_files(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "axolotl==0.16.1\ntransformers==4.44.2\n",
        "axolotl.yaml": "base_model: a/b\nadapter: lora\nlora_r: 8\n"
        "datasets:\n  - path: x\n    type: alpaca\n"
        "micro_batch_size: 1\ngradient_accumulation_steps: 1\nnum_epochs: 1\noutput_dir: out\n",
    }
    (tmp_path / ".git").mkdir()
    err = lint(tmp_path, files, ["axolotl.yaml"]).err
    assert "axolotl 0.16.1 (requirements.txt:1)" in err
    assert "transformers 5.5.0 (axolotl 0.16.1 requires it)" in err
    assert "transformers 4.44.2 (requirements.txt:2)" in asked(tmp_path, files).err


@pytest.mark.parametrize("other", ["transformers==4.40.2\n", "transformers @ file:///src/hf\n"])
def test_lists_that_disagree_leave_the_release_open(other: str, tmp_path: Path) -> None:
    both = {"requirements.txt": "transformers==4.57.1\n", "requirements_train.txt": other}
    assert not told(asked(tmp_path, both))


@pytest.mark.parametrize(
    ("beside", "is_told"),
    [
        ("pip install git+https://github.com/huggingface/transformers.git\n", False),
        ("pip install transformers==4.40.2\n", False),
        ("# pip install transformers==4.40.2\n", True),
        ("pip install transformers==4.57.1\n", True),
    ],
)
def test_what_a_command_installs_after_the_list_may_be_what_runs(
    beside: str, is_told: bool, tmp_path: Path
) -> None:
    setup = "setup(install_requires=['transformers==4.57.1'])\n"
    files = {"setup.py": setup, "Makefile": f"install:\n\tpip install -e . && \\\n\t{beside}"}
    if beside.startswith("#"):
        files["Makefile"] = beside
    assert bool(told(asked(tmp_path, files))) == is_told


@pytest.mark.parametrize(
    ("scripts", "is_told"),
    [
        ({"setup/a.sh": "pip install transformers==4.44.2\n"}, False),
        ({"setup/a.sh": "pip install transformers==4.57.1\n"}, True),
        ({"setup/a.sh": "pip install transformers==4.57.1\n", "b/Dockerfile": "FROM x\n"}, True),
        (
            {
                "setup/a.sh": "pip install transformers==4.57.1\n",
                "b/Dockerfile": "RUN pip install transformers==4.44.2\n",
            },
            False,
        ),
        ({"setup/a.sh": "pip install transformers==4.30.0\n"}, False),
    ],
)
def test_of_a_range_the_release_holds_that_every_command_of_the_project_installs(
    scripts: dict[str, str], is_told: bool, tmp_path: Path
) -> None:
    files = {"setup.py": "setup(install_requires=['transformers>=4.40'])\n", **scripts}
    assert bool([each for each in told(asked(tmp_path, files)) if each[0] != "note"]) == is_told


def test_a_setup_is_read_and_never_run(tmp_path: Path) -> None:
    text = (
        "import os\nos.system('touch was-run')\nextras = {}\n"
        "extras['dev'] = ['transformers==5.0.0']\n_deps = ['transformers>=4.40,<4.46']\n"
        "setup(name='own', version='1.0', install_requires=_deps)\n"
    )
    answer = asked(tmp_path, {"setup.py": text})
    assert "transformers>=4.40,<4.46 (setup.py:5)" in answer.err
    assert not (tmp_path / "was-run").exists()


def test_a_program_in_its_own_repository_has_its_own_release(tmp_path: Path) -> None:
    text = "__version__ = '4.44.0.dev0'\nsetup(name='transformers', version=__version__)\n"
    assert "transformers 4.44.0.dev0 (setup.py:1)" in asked(tmp_path, {"setup.py": text}).err


@pytest.mark.parametrize(*rows(__file__, "test_what_requires_nothing_is_passed_over"))
def test_what_requires_nothing_is_passed_over(name: str, text: str, tmp_path: Path) -> None:
    answer = asked(tmp_path, {name: text})
    assert [severity for severity, _ in told(answer)] == ["note"]
    assert "releases:" not in answer.err


@pytest.mark.parametrize(*rows(__file__, "test_the_words_of_each_tool"))
def test_the_words_of_each_tool(name: str, text: str, expected: str) -> None:
    assert rank_of(name) is not None
    (found,) = stated(name, text)
    assert (found.package, found.releases.text) == ("trl", expected)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        ("~=4.44.1", ("4.44.1", "4.44.9"), ("4.44.0", "4.45.0")),
        ("~=4.44", ("4.44", "4.60"), ("4.43", "5.0")),
        (">4.44", ("4.44.1", "5.0"), ("4.44", "4.44.post1")),
        ("===4.44.2", ("4.44.2",), ("4.44.3",)),
        ("==2.3.0", ("2.3.0", "2.3.0+cu121"), ("2.3.1+cu121",)),
        ("<=2.3.0", ("2.3.0+cu121",), ("2.3.1",)),
    ],
)
def test_every_operator_of_pip(
    bounds: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    from packaging.specifiers import SpecifierSet

    for version in (*inside, *outside):
        expected = SpecifierSet(bounds).contains(version, prereleases=True)
        assert Releases(bounds).contains(Version(version)) is expected is (version in inside)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("requirements.txt", "git+https://github.com/huggingface/transformers@4f3c2a1b9d\n", 1),
        (
            "README.md",
            (
                "git clone https://github.com/huggingface/transformers\ncd transformers\n"
                "git checkout 4f3c2a1b9d\npip install -e .\n"
            ),
            3,
        ),
    ],
)
def test_a_commit_may_be_of_any_release(name: str, text: str, line: int, tmp_path: Path) -> None:
    files = {"requirements.txt": "transformers==5.23.0\n", f"here/{name}": text}
    assert told(asked(tmp_path, files)) != []
    answer = asked(tmp_path, files, at="here/args.yaml")
    assert told(answer) == []  # it is not the newest, nor what a folder further up names
    assert f"transformers at a commit (here/{name}:{line})" in answer.err


@pytest.mark.parametrize(("transformers", "is_told"), [("4.34.0", False), ("5.0.0", True)])
def test_one_transformers_leaves_the_releases_of_trl_that_it_goes_with(
    transformers: str, is_told: bool, tmp_path: Path
) -> None:
    script = (
        "from transformers import TrainingArguments\nfrom trl import SFTTrainer\n"
        "args = TrainingArguments(output_dir='out')\n"
        "SFTTrainer(model='a/b', args=args, packing=True)\n"
    )
    files = {"train.py": script, "requirements.txt": f"trl>=0.7.2\ntransformers=={transformers}\n"}
    told = [e["id"] for e in lint(tmp_path, files, ["."]).findings if e["severity"] != "note"]
    assert ("trainer-argument-moved" in told) == is_told
