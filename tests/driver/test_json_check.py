"""The quick check and the jsonschema library give one verdict, on every schema that we have."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import tunec.schemas
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.json_check import KEYWORDS, UnknownKeyword, is_valid
from tunec.targets.registry import TARGETS

ROOT = Path(__file__).parents[2]
FOLDER = Path(tunec.schemas.__file__).parent / "json"
SCHEMAS = {
    path.relative_to(FOLDER).as_posix(): schema
    for path in sorted(FOLDER.rglob("*.json"))
    if "$schema" in (schema := json.loads(path.read_text("utf-8")))
}
SPECS = sorted((ROOT / "examples").rglob("*.yaml"))

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**40)
    | st.sampled_from([0.0, 1.0, -1.5, 1e-8])
    | st.sampled_from(["", "auto", "cpu", "80GiB", "90%", "Adam", "fp16", "2M tokens", "1e-4"])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3)
    ),
    max_leaves=6,
)


def agree(document: Any, schema: Any) -> bool:
    found = is_valid(document, schema)
    assert found == Draft202012Validator(schema).is_valid(document), document
    return found


def referred(reference: str, root: Any) -> Any:
    for part in reference.split("/")[1:]:
        root = root[part]
    return root


def fitting(schema: Any, root: Any, draw: Any, depth: int = 0) -> Any:
    """A document that follows a schema's structure, with something else here and there."""
    if not isinstance(schema, dict) or depth > 5 or draw(st.integers(0, 14)) == 0:
        return draw(values)
    if "$ref" in schema:
        return fitting(referred(schema["$ref"], root), root, draw, depth)
    for branches in ("anyOf", "allOf"):
        if branches in schema:
            return fitting(draw(st.sampled_from(schema[branches])), root, draw, depth)
    if "enum" in schema or "const" in schema:
        return draw(st.sampled_from(schema.get("enum") or [schema["const"]]))
    if schema.get("properties"):
        names = draw(st.lists(st.sampled_from(sorted(schema["properties"])), max_size=6))
        asked = [*schema.get("required", ()), *names]
        known = schema["properties"]
        return {n: fitting(known.get(n, True), root, draw, depth + 1) for n in asked}
    if schema.get("type") == "array":
        item = schema.get("items", True)
        return [fitting(item, root, draw, depth + 1) for _ in range(draw(st.integers(0, 3)))]
    if "default" in schema or "examples" in schema:
        return schema.get("default", schema.get("examples", [None])[0])
    return draw(leaves)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_keyword_is_known(name):
    """No schema of ours sends every file to the slow library for want of a keyword."""
    used = {each for each in keywords(SCHEMAS[name]) if not each.startswith("x-")}
    assert used <= KEYWORDS


def keywords(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    below = [child for key in ("properties", "$defs") for child in schema.get(key, {}).values()]
    below += [child for key in ("anyOf", "allOf", "prefixItems") for child in schema.get(key, ())]
    single = ("items", "additionalProperties", "propertyNames", "not", "if", "then", "else")
    below += [schema.get(key) for key in single]
    return set(schema).union(*map(keywords, below))


@given(st.data())
def test_one_verdict_on_random_documents(data):
    schema = SCHEMAS[data.draw(st.sampled_from(sorted(SCHEMAS)))]
    agree(fitting(schema, schema, data.draw), schema)


@given(values, st.data())
def test_one_verdict_on_each_keyword(value, data):
    number = st.sampled_from([-1, 0, 1, 1.0, 2, 3])
    kind = st.sampled_from(
        ["null", "boolean", "string", "array", "object", "number", "integer", ["null", "integer"]]
    )
    simple = st.fixed_dictionaries(
        {},
        optional={
            "type": kind,
            "enum": st.lists(values, min_size=1, max_size=3),
            "const": values,
            **dict.fromkeys(("minimum", "maximum"), number),
            **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), number),
            **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), st.integers(0, 3)),
            **dict.fromkeys(("minProperties", "maxProperties"), st.integers(0, 3)),
            "pattern": st.sampled_from(["^a", "u", r"\d", "^$"]),
            "required": st.lists(st.sampled_from("abx"), max_size=2, unique=True),
        },
    )
    schema = data.draw(
        st.recursive(
            simple | st.booleans(),
            lambda inner: st.fixed_dictionaries(
                {},
                optional={
                    "anyOf": st.lists(inner, min_size=1, max_size=2),
                    "allOf": st.lists(inner, min_size=1, max_size=2),
                    "not": inner,
                    "if": inner,
                    "then": inner,
                    "else": inner,
                    "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
                    "additionalProperties": inner,
                    "propertyNames": inner,
                    "items": inner,
                    "prefixItems": st.lists(inner, min_size=1, max_size=2),
                    "x-note": st.just("nothing"),
                },
            ),
            max_leaves=6,
        )
    )
    agree(value, schema)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_one_verdict_on_what_is_emitted_and_on_each_change_of_it(path):
    """Every file that an example compiles to, whole, and with each of its values spoilt."""
    loaded = load_spec(path)
    for name in TARGETS:
        target, version = TARGETS.resolve(name)
        dialect = target.dialect(version, loaded.spec.software if loaded.spec else {})
        compiled = compile_spec(loaded, [(target, version)], repairing=False)
        for artifact in compiled.artifacts.get(name, ()):
            file = next(each for each in target.files if each.name == artifact.name)
            schema = file.schema(dialect) if file.schema else None
            if schema is None:
                continue
            assert agree(artifact.values, SCHEMAS[schema])
            refused = [agree(each, SCHEMAS[schema]) for each in spoilt(artifact.values)]
            assert not all(refused)


def spoilt(document: dict[str, Any]):
    for key in document:
        for value in (None, "a word", -1, 0.5, [], {}):
            changed = copy.copy(document)
            changed[key] = value
            yield changed
    yield {**document, "no_such_key": 1}


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [True]},
        {"properties": {"a": {"uniqueItems": True}}},
        {"$ref": "https://example.org/a.json"},
        {"$ref": "#/$defs/absent"},
    ],
    ids=str,
)
def test_an_unknown_keyword_is_not_passed_over(schema):
    with pytest.raises(UnknownKeyword):
        is_valid({"a": [1, 1]}, schema)
