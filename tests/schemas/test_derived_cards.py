"""A card's file may come from a stranger: what no class has is refused where it is read."""

import json
from pathlib import Path

import pytest

import tunec.schemas
from tunec.schemas.models.derived_card import DerivedCard

SHIPPED = sorted((Path(tunec.schemas.__file__).parent / "models/derived").glob("*.json"))


def test_all_that_are_shipped_are_read():
    assert len(SHIPPED) > 50
    for each in SHIPPED:
        DerivedCard.of_json(each.read_bytes())


def card(**changed):
    found = json.loads(next(each for each in SHIPPED if "apertus" in each.name).read_text("utf-8"))
    architecture = found["architecture"]
    for path, value in changed.items():
        holder, *keys, last = [int(k) if k.isdigit() else k for k in ("", *path.split("__"))]
        holder = architecture
        for key in keys:
            holder = holder[key]
        holder[last] = value
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    "changed",
    [
        {"stacks": []},
        {"stacks__0__layers": 0},
        {"stacks__0__part": "vision"},
        {"hidden": 0},
        {"vocab": -1},
        {"modules__0__path": "{:9999999999}"},
        {"modules__0__path": "{0.__class__}"},
        {"modules__0__copies": 10**9},
        {"modules__0__indices": [[1, 2, 3], [4]]},
        {"modules__0__shape": [-1, 2]},
        {"modules__1__shape": [8192]},
        {"modules__1__path": "model.layers.{}.mlp.experts.bias", "modules__1__kind": "parameter"}
        | {"modules__1__shape": [8192]},
    ],
    ids=str,
)
def test_what_no_class_has_is_refused(changed):
    DerivedCard.of_json(card())
    with pytest.raises(ValueError):  # noqa: PT011  msgspec's and ours
        DerivedCard.of_json(card(**changed))


def test_a_denoiser_whose_blocks_are_measured_in_part_is_refused():
    found = json.loads(next(each for each in SHIPPED if "AuraFlow" in each.name).read_text("utf-8"))
    DerivedCard.of_json(json.dumps(found).encode())
    found["architecture"]["stacks"][1].pop("blocks")
    with pytest.raises(ValueError, match="measured in the same ways"):
        DerivedCard.of_json(json.dumps(found).encode())
