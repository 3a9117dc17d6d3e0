"""What lint says of the data sets that dataset_info.json describes for LLaMA-Factory."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.lints.lint_asking import lint

_TAGS: Final = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
}
_TURNS: Final = {
    "file_name": "chat.json",
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": _TAGS,
}


def _asked(folder: Path, info: dict[str, Any], **said: Any) -> list[tuple[str, str | None]]:
    """The rules that speak of the data, and what they say happens."""
    own = {
        "model_name_or_path": "Qwen/Qwen2.5-7B-Instruct",
        "stage": "sft",
        "do_train": True,
        "dataset": "chat",
        "template": "qwen",
        "output_dir": "out",
        **said,
    }
    files = {"train.json": json.dumps(own), "data/dataset_info.json": json.dumps(info)}
    found = lint(folder, files, ["train.json", "data/dataset_info.json"]).findings
    return [
        (each["id"], each["consequence"]) for each in found if each["id"].startswith("data-set-")
    ]


@pytest.mark.parametrize(
    ("stage", "ranking", "is_refused"),
    [
        ("dpo", None, True),
        ("rm", False, True),
        ("dpo", True, False),
        ("sft", True, True),
        ("kto", True, True),
        ("sft", None, False),
        ("dpo", "true", False),  # of text neither comparison is true
    ],
)
def test_pairs_are_for_two_stages(
    tmp_path: Path, stage: str, ranking: object, *, is_refused: bool
) -> None:
    said = _TURNS if ranking is None else {**_TURNS, "ranking": ranking}
    found = _asked(tmp_path, {"chat": said}, stage=stage)
    assert found == [("data-set-of-another-stage", "init")] * is_refused


@pytest.mark.parametrize("left", ["role_tag", "assistant_tag"])
def test_a_block_of_tags_has_no_defaults(tmp_path: Path, left: str) -> None:
    said = {**_TURNS, "tags": {key: each for key, each in _TAGS.items() if key != left}}
    assert _asked(tmp_path, {"chat": said}) == [("data-set-words-left-out", "init")]
    beside = {"chat": said, "more": _TURNS}
    is_dropped = left == "assistant_tag"
    told = _asked(tmp_path, beside, dataset="chat,more")
    assert told == [("data-set-words-left-out", "silent" if is_dropped else "init")]


def test_other_sets_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    odd = {**_TURNS, "format": "sharegpt", "columns": {}, "tags": {}}
    assert _asked(tmp_path, {"chat": _TURNS, "odd": odd}) == []
    assert _asked(tmp_path, {"chat": odd}, dataset_dir="/data/of/others") == []
    assert _asked(tmp_path, {"chat": _TURNS, "chats": _TURNS}, dataset="identity") == []


def test_columns_and_keys_of_no_release(tmp_path: Path) -> None:
    said = {**_TURNS, "columns": {"message": "messages"}, "file_sha1": "0", "note": "mine"}
    assert _asked(tmp_path, {"chat": said}) == [
        ("data-set-words-left-out", "init"),
        ("data-set-word-unread", "silent"),
    ]
    plain = {"file_name": "chat.json", "format": "sharegpt"}
    assert _asked(tmp_path, {"chat": plain}) == [("data-set-word-unread", "init")]
    assert _asked(tmp_path, {"chat": plain}, dataset="chats") == [
        ("data-set-not-described", "init")
    ]
