"""`tunec.toml`, where it is found and what it settles; and what a script gives `Accelerator`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.lints.lint_asking import Answer, lint

from tunec.compiler.frontend.nodes import plain
from tunec.compiler.lints.formats import parse_text
from tunec.compiler.lints.settings import read_settings
from tunec.schemas.lint_settings import LintSettings

_PAGE = (Path(__file__).parents[2] / "docs/lint-settings.md").read_text("utf-8")
_BOTH = json.dumps({"fp16": {"enabled": True}, "bf16": {"enabled": True}})
_RULE = "fp16-and-bf16"


def _ask(folder: Path, settings: str, *arguments: str, **more: str) -> Answer:
    (folder / ".git").mkdir(exist_ok=True)
    files = {"a/ds_config.json": _BOTH, "tunec.toml": settings}
    files |= {name.replace("__", "/"): text for name, text in more.items()}
    return lint(folder, files, arguments or ["."])


def _level(answer: Answer) -> str | None:
    return next((each["severity"] for each in answer.findings if each["id"] == _RULE), None)


@pytest.mark.parametrize(
    ("level", "severity", "code"),
    [("error", "error", 1), ("warn", "warning", 0), ("note", "note", 0), ("off", None, 0)],
)
def test_a_rule_has_the_level_that_is_set(
    level: str, severity: str | None, code: int, tmp_path: Path
) -> None:
    answer = _ask(tmp_path, f'[rules]\n{_RULE} = "{level}"\n')
    assert (_level(answer), answer.code) == (severity, code)
    assert "settings: tunec.toml" in answer.err
    everywhere = _ask(tmp_path, f'[rules]\n{_RULE} = "{level}"\n', ".", "--no-config")
    assert (_level(everywhere), everywhere.code) == ("error", 1)


def test_a_warning_that_is_set_to_be_an_error_fails(tmp_path: Path) -> None:
    text = "output_dir: out\nper_gpu_batch: 2\n"
    settings = '[rules]\nkey-of-no-class = "error"\n'
    (tmp_path / ".git").mkdir()
    files = {"training_args.yaml": text, "tunec.toml": settings}
    assert lint(tmp_path, files, ["."]).code == 1
    assert lint(tmp_path, {}, [".", "--no-config"]).code == 0


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        *[
            (each, True)
            for each in ("a/**", "a", "a/*.json", "*.json", "**/ds_*", "./a/", "a/?s_*")
        ],
        *[(each, False) for each in ("b/**", "ds_config", "*/b/*.json", "a/**/b/**", "A/**")],
    ],
)
def test_patterns_select_files_for_levels_and_for_exclusion(
    pattern: str, matches: bool, tmp_path: Path
) -> None:
    by_path = _ask(tmp_path, f'[paths."{pattern}"]\n{_RULE} = "off"\n')
    assert (_level(by_path) is None) == matches
    left = _ask(tmp_path, f'exclude = ["{pattern}"]\n')
    assert (_RULE in left.names) != matches
    named = _ask(tmp_path, f'exclude = ["{pattern}"]\n', "a/ds_config.json")
    assert _RULE in named.names, "a file that is named is read"


def test_the_last_pattern_holds_and_a_path_before_the_whole(tmp_path: Path) -> None:
    rules = f'[rules]\n{_RULE} = "note"\n[paths."a/**"]\n{_RULE} = "warn"\n'
    assert _level(_ask(tmp_path, rules)) == "warning"
    assert _level(_ask(tmp_path, f'{rules}[paths."*.json"]\n{_RULE} = "off"\n')) is None
    assert _level(_ask(tmp_path, f'{rules}[paths."b/**"]\n{_RULE} = "off"\n')) == "warning"


def test_what_nobody_can_tell_stays_a_note(tmp_path: Path) -> None:
    """A script may have a class with such a key: that is unknown, however much it weighs."""
    text = "output_dir: out\nmodel_name_or_path: m\nper_gpu_batch: 2\n"
    (tmp_path / ".git").mkdir()
    files = {"b/training_args.yaml": text, "tunec.toml": '[rules]\nkey-of-no-class = "error"\n'}
    answer = lint(tmp_path, files, ["b"])
    told = [each for each in answer.findings if each["id"] == "key-of-no-class"]
    assert [each["severity"] for each in told] == ["note"]
    assert told[0]["message"].startswith("cannot tell")
    off = {"tunec.toml": '[rules]\nkey-of-no-class = "off"\n'}
    assert "key-of-no-class" not in lint(tmp_path, off, ["b"]).names


# ── where it is found ────────────────────────────────────────────────────────────────────────────

_OFF = f'[rules]\n{_RULE} = "off"\n'
_SHARED = f'[project]\nname = "x"\n[tool.tunec.rules]\n{_RULE} = "warn"\n'


def _found(folder: Path, files: dict[str, str], *named: str) -> str | None:
    return _level(lint(folder, {"a/b/ds_config.json": _BOTH, **files}, named or ["a/b"]))


def test_the_nearest_file_within_the_repository_holds(tmp_path: Path) -> None:
    repository = tmp_path / "r"
    (repository / ".git").mkdir(parents=True)
    (tmp_path / "tunec.toml").write_text(_OFF)
    assert _found(repository, {}) == "error", "outside the repository"
    assert _found(repository, {"pyproject.toml": _SHARED}) == "warning"
    assert _found(repository, {"a/pyproject.toml": '[project]\nname = "x"\n'}) == "warning"
    assert _found(repository, {"a/pyproject.toml": 'tunec = [[["\n'}) == "warning", "not ours"
    assert _found(repository, {"a/tunec.toml": _OFF}) is None
    assert _found(repository, {}, ".") == "warning", "the folder around all that is linted"
    assert _found(repository, {}, "a/b", "--config", "pyproject.toml") == "warning"
    assert _found(repository, {"a/tunec.toml": _SHARED, "tunec.toml": _OFF}, ".") is None


def test_config_and_no_config_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        _ask(tmp_path, "", ".", "--config", "tunec.toml", "--no-config")


def test_a_file_that_is_named_has_to_be_there_and_to_speak_to_tunec(tmp_path: Path) -> None:
    missing = _ask(tmp_path, "", ".", "--config", "tunec.tml")
    assert (missing.code, missing.names) == (1, ["E0201"])
    assert "tunec.toml" in missing.findings[0]["help"]
    silent = _ask(
        tmp_path,
        "",
        ".",
        "--config",
        "pyproject.toml",
        pyproject__toml="",
        **{"pyproject.toml": ""},
    )
    assert silent.names == ["E0302"]


# ── hardware, software, baseline ─────────────────────────────────────────────────────────────────


def test_the_command_line_wins_over_hardware_and_software(tmp_path: Path) -> None:
    bf16 = json.dumps({"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1})
    files = {"ds.json": bf16}
    old = "hardware = 'v100-sxm2-32g-x2'\n"

    def names(settings: str, *arguments: str) -> list[str]:
        return lint(tmp_path, {**files, "tunec.toml": settings}, [".", *arguments]).names

    assert set(names(old)) - set(names("")) == {"bf16-without-hardware"}
    assert names(old, "--hardware", "a100-80g-x2") == names("", "--hardware", "a100-80g-x2")
    late = "software = {transformers = '==4.40.2', deepspeed = '>=0.14,<0.15'}\n"
    files = {"training_args.yaml": "output_dir: o\nuse_cpu: true\neval_strategy: steps\n"}
    assert "key-of-another-release" in names(late)
    assert "key-of-another-release" not in names(late, "--software", "transformers=4.57")


def test_the_baseline_lies_beside_the_settings(tmp_path: Path) -> None:
    settings = "baseline = 'known.json'\n"
    assert _ask(tmp_path, settings).names == ["E0305"]
    assert _ask(tmp_path, settings, "a", "--write-baseline").code == 0
    assert (tmp_path / "known.json").is_file()
    assert _ask(tmp_path, settings, "a").findings == []
    (tmp_path / "none.json").write_text('{"baseline": 1, "findings": []}')
    assert _RULE in _ask(tmp_path, settings, "a", "--baseline", "none.json").names


# ── faults ───────────────────────────────────────────────────────────────────────────────────────

_FAULTY = """\
exlude = ["a"]
exclude = ["/etc", "../up", 3]
hardware = "a100-80gg-x8"
software = {transfromers = "4.57", trl = ">=abc"}
baseline = "gone.json"

[rules]
fp16-and-bf61 = "warn"
E0301 = "off"
missing-file = "warning"

[paths."old/**"]
no-such-rule-at-all = "off"
"""


def test_every_fault_is_told_at_once_at_its_place(tmp_path: Path) -> None:
    answer = _ask(tmp_path, _FAULTY)
    assert answer.code == 1
    assert _RULE not in answer.names, "nothing is linted"
    told = {(each["id"], each["labels"][0]["line"]) for each in answer.findings}
    assert told == {
        ("E0301", 1),
        ("E0306", 2),
        ("E0303", 2),
        ("E0305", 3),
        ("E0301", 4),
        ("E0310", 4),
        ("E0305", 5),
        ("E0317", 8),
        ("E0317", 9),
        ("E0304", 10),
        ("E0317", 13),
    }
    assert all(each["labels"][0]["file"] == "tunec.toml" for each in answer.findings)
    assert all(each["help"] for each in answer.findings)
    helps = " ".join(each["help"] for each in answer.findings)
    assert all(f"`{name}`" in helps for name in ("exclude", _RULE, "transformers"))
    fixes = [each["fix"] for each in answer.findings if each["id"] == "E0317"]
    assert fixes[0]["edits"][0]["text"] == _RULE


def test_faults_in_pyproject_are_at_their_lines(tmp_path: Path) -> None:
    shared = "[tool.black]\nx = 1\n[tool.tunec.rules]\nnope-nope = 'off'\n"
    (tmp_path / ".git").mkdir()
    answer = lint(tmp_path, {"pyproject.toml": shared, "ds.json": _BOTH}, ["."])
    assert [(each["id"], each["labels"][0]["line"]) for each in answer.findings] == [("E0317", 4)]
    broken = lint(tmp_path, {"pyproject.toml": f"{shared}x = = 1\n"}, ["."])
    assert [(each["id"], each["labels"][0]["line"]) for each in broken.findings] == [("E0104", 5)]


@pytest.mark.parametrize(
    "text", ["", "\0", "[" * 5000, "\ud800", "rules = 1", "paths = [[1]]", "rules.a.b.c = 1"]
)
def test_no_content_ends_in_a_traceback(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tunec.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    read = read_settings(path, "tunec.toml")
    assert bool(read.faults) == bool(text)


# ── what comes from a stranger ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["baseline", "hardware"])
def test_no_file_outside_the_project_is_read_or_written(key: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("password: hunter2\n")
    inside = tmp_path / "r"
    (inside / "a").mkdir(parents=True)
    (inside / "link.json").symlink_to(secret)
    for name in ("../secret.json", str(secret), "link.json"):
        settings = f"{key} = '{name}'\n"
        answer = _ask(inside, settings)
        assert answer.names == ["E0202"], name
        assert "hunter2" not in answer.out + answer.err
        written = _ask(inside, settings, ".", "--write-baseline", "--allow", _RULE)
        assert written.names == ["E0202"]
        assert secret.read_text() == "password: hunter2\n"
    allowed = _ask(inside, f"{key} = '../secret.json'\n", ".", "--allow-outside")
    assert "E0202" not in allowed.out


def test_no_character_of_the_file_moves_the_terminal(tmp_path: Path) -> None:
    escape = '[rules]\n"\\u001b[31mx" = "off"\n[paths."\\u001b]0;x\\u0007/.."]\n'
    answer = _ask(tmp_path, escape, ".", "--format", "text")
    assert answer.code == 1
    assert "\x1b" not in answer.out + answer.err
    assert "E0317" in answer.out


# ── the page ─────────────────────────────────────────────────────────────────────────────────────


def test_the_page_has_every_key_and_its_example_holds(tmp_path: Path) -> None:
    assert re.findall(r"^\| `(\w+)`", _PAGE, re.MULTILINE) == [
        *("exclude", "rules", "paths", "software", "hardware", "baseline")
    ]
    assert set(re.findall(r"^\| `(\w+)`", _PAGE, re.MULTILINE)) == set(LintSettings.model_fields)
    example = re.search(r"```toml\n(.*?)```", _PAGE, re.DOTALL)
    assert example is not None
    path = tmp_path / "tunec.toml"
    path.write_text(example[1])
    assert read_settings(path, "tunec.toml", needs_baseline=False).faults == ()


_HEAD = (
    "from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin\n"
    "from transformers import AutoModelForCausalLM\n"
    'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
)
_SHARDS = """plugin = FullyShardedDataParallelPlugin(
    fsdp_version={version}, use_orig_params=False, auto_wrap_policy="transformer_based_wrap",
    transformer_cls_names_to_wrap=["{layer}"], sharding_strategy=choose(),
)
accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin={given})
"""
_ENGINE = """accelerator = Accelerator(
    deepspeed_plugin=DeepSpeedPlugin(zero_stage={stage}, offload_param_device="cpu")
)
"""
_INLINE = """plugin = DeepSpeedPlugin(hf_ds_config={{"train_micro_batch_size_per_gpu": 1,
    "fp16": {{"enabled": {half}}}, "bf16": {{"enabled": True}},
    "zero_optimization": {{"stage": 2}}}})
accelerator = Accelerator(deepspeed_plugin=plugin)
"""


def _documents(text: str) -> dict[str, Any]:
    return {each.kind: plain(each.root) for each in parse_text("train.py", _HEAD + text)[0]}


def test_a_plugin_is_read_in_the_words_of_the_file() -> None:
    read = _documents(_SHARDS.format(version=2, layer="Qwen2DecoderLayer", given="plugin"))
    assert read["accelerate"] == {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_use_orig_params": False,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_transformer_layer_cls_to_wrap": "Qwen2DecoderLayer",
        },
    }


@pytest.mark.parametrize("given", ["other", "plugin if is_sharded else None"])
def test_a_plugin_that_is_not_surely_given_is_not_read(given: str) -> None:
    assert "accelerate" not in _documents(_SHARDS.format(version=2, layer="A", given=given))


@pytest.mark.parametrize(
    ("rule", "text", "bad", "good"),
    [
        ("fsdp-keys-of-another-version", _SHARDS, {"version": 2}, {"version": 1}),
        (
            "fsdp-wrap-class-of-another-model",
            _SHARDS,
            {"layer": "LlamaDecoderLayer"},
            {"version": 1},
        ),
        ("offload-param-ignored", _ENGINE, {"stage": 2}, {"stage": 3}),
        ("fp16-and-bf16", _INLINE, {"half": True}, {"half": False}),
    ],
)
def test_rules_of_the_file_hold_for_the_script(
    rule: str, text: str, bad: dict[str, Any], good: dict[str, Any], tmp_path: Path
) -> None:
    sound = {"version": 2, "layer": "Qwen2DecoderLayer", "given": "plugin"}
    found = []
    for at, words in enumerate((bad, good)):
        folder = tmp_path / str(at)
        folder.mkdir()
        answer = lint(folder, {"train.py": _HEAD + text.format(**{**sound, **words})}, ["."])
        found.append({e["id"] for e in answer.findings if e["severity"] != "note"})
    assert rule in found[0]
    assert rule not in found[1]
