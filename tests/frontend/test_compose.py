"""Composition: layers, overrides, references; and the place of every value that survives."""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from tests.tables import rows

from tunec.compiler.frontend.compose import compose, spans_of
from tunec.compiler.frontend.files import Layers, Read, read_layers
from tunec.compiler.frontend.interpolation import check, references
from tunec.compiler.frontend.nodes import plain, walk
from tunec.compiler.frontend.omega import merge_values
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.project import project_root
from tunec.schemas.source import COMMAND_LINE, dotted, text_of
from tunec.schemas.spec import SHORTHANDS, Spec


def layers(*documents: object) -> Layers:
    texts = [yaml.safe_dump(each, sort_keys=False) for each in documents]
    nodes = tuple(parse(text, f"{at}.yaml", "spec")[0] for at, text in enumerate(texts))
    return Layers(nodes, (), Read({f"{at}.yaml": text for at, text in enumerate(texts)}))


def composed(*documents: object, overrides: tuple[str, ...] = ()):
    return compose(layers(*documents), overrides)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file = file.with_name(file.name + ".yaml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return folder


# ── layers ───────────────────────────────────────────────────────────────────────────────────────

KEYS = st.sampled_from(["a", "b", "zero.stage", "c d", "ü"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["x", "", "$", "a.b", "???x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)


@given(st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_layers_are_merged_as_omegaconf_does(documents):
    found = composed(*documents)
    try:
        expected = OmegaConf.to_container(OmegaConf.merge(*map(OmegaConf.create, documents)))
    except TypeError:  # a list over a mapping, which OmegaConf refuses and a spec replaces
        pass
    else:
        assert found.data == expected
    assert plain(found.tree) == found.data, "the places are those of the values"
    assert set(spans_of(found.tree)) == {path for path, _ in walk(found.tree)}
    assert not found.faults


@given(st.lists(DOCUMENTS, min_size=1, max_size=3))
def test_the_place_of_a_value_is_in_the_layer_that_gave_it(documents):
    found = composed(*documents)
    for path, node in walk(found.tree):
        if node.is_leaf:
            at = int(node.span.file.partition(".")[0])
            value = documents[at]
            for part in path:
                value = value[part]
            assert value == node.value


def test_a_later_choice_replaces_the_earlier():
    base = {"method": {"lora": {"rank": 8}}, "train": {"steps": 5, "warmup": {"steps": 3}}}
    over = {"method": {"qlora": {"rank": 4}}, "train": {"epochs": 2, "warmup": {"share": 0.1}}}
    found = composed(base, over)
    assert found.data == {
        "method": {"qlora": {"rank": 4}},
        "train": {"epochs": 2, "warmup": {"share": 0.1}},
    }
    assert plain(found.tree) == found.data


def test_the_same_choice_is_merged():
    found = composed({"method": {"lora": {"rank": 8}}}, {"method": {"lora": {"alpha": 4}}})
    assert found.data == {"method": {"lora": {"rank": 8, "alpha": 4}}}


def test_a_list_replaces_a_mapping():
    found = composed({"a": {"b": [1], "c": 2}}, {"a": {"b": {"x": 1}}})
    assert found.data == plain(found.tree) == {"a": {"b": {"x": 1}, "c": 2}}


def test_an_empty_choice_replaces_nothing():
    found = composed({"train": {"epochs": 3}}, {"train": {"steps": None}})
    assert found.data == {"train": {"epochs": 3, "steps": None}}


def test_what_must_be_given_is_given_later():
    found = composed({"model": "???", "data": {"train": "???"}}, {"model": "m"})
    assert found.data["model"] == "m"
    assert [(each.id, each.primary.path) for each in found.faults] == [("E0213", "data.train")]


@pytest.mark.parametrize(*rows(__file__, "test_a_later_layer_adds_to_what_a_text_is_short_for"))
def test_a_later_layer_adds_to_what_a_text_is_short_for(below, above, expected):
    found = composed(below, above)
    assert not found.faults
    assert found.data == plain(found.tree) == expected


def test_an_override_adds_to_what_a_text_is_short_for():
    found = composed({"precision": "fp16"}, overrides=("precision.deprecated_fp16=true",))
    assert found.data == {"precision": {"compute": "fp16", "deprecated_fp16": True}}
    where = spans_of(found.tree)
    assert where["precision", "compute"].file == "0.yaml"
    assert where["precision", "deprecated_fp16"].file == COMMAND_LINE


@pytest.mark.parametrize(("path", "field"), SHORTHANDS.items(), ids=map(dotted, SHORTHANDS))
def test_a_text_and_the_mapping_it_is_short_for_mean_the_same(path, field):
    spec = {"tunec": 1, "model": "m", "method": "full", "hardware": "h", "data": "d"}
    text = {"optimizer": "lion", "precision": "fp16", "devices": "all"}.get(path[-1], "d")
    short, whole = (_with_at(spec, path, each) for each in (text, {field: text}))
    assert Spec.model_validate(short) == Spec.model_validate(whole)


def _with_at(spec, path, value):
    return {**spec, path[0]: value if len(path) == 1 else {path[1]: value}}


# ── overrides ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(*rows(__file__, "test_an_override_on_nothing"))
def test_an_override_on_nothing(override, expected):
    found = composed({}, overrides=(override,))
    assert not found.faults
    assert found.data == expected
    assert plain(found.tree) == expected


def test_an_override_of_an_item():
    found = composed(
        {"x": [1, {"y": [2, 3], "z": 4}]}, overrides=("x[0]=9", "x[1].y[1]=8", "x[1].z=7")
    )
    assert not found.faults
    assert found.data == {"x": [9, {"y": [2, 8], "z": 7}]}
    where = spans_of(found.tree)
    assert where["x", 0].file == COMMAND_LINE
    assert where["x", 1, "y", 0].file == "0.yaml"


def test_a_reason_keeps_the_pinned_value():
    found = composed({"pin": {"zero.stage": 2}}, overrides=("pin.zero.stage.reason=old runs",))
    assert found.data == {"pin": {"zero.stage": {"value": 2, "reason": "old runs"}}}


def test_places_of_overrides():
    found = composed({"train": {"seed": 1}}, overrides=("train.seed=2", "train.epochs=  3"))
    where = spans_of(found.tree)
    assert str(where["train", "seed"]) == "<command line>:1:12"
    assert str(where["train", "epochs"]) == "<command line>:2:16"
    assert where[("train",)].file == "0.yaml", "the mapping stays where it was"
    text = found.read.sources[COMMAND_LINE]
    assert text_of(where["train", "epochs"], text) == "3"


def test_places_of_overrides_of_several_lines():
    found = composed({}, overrides=("name='a\n\n  b'", "train.seed=x"))
    where = spans_of(found.tree)
    text = found.read.sources[COMMAND_LINE]
    assert text_of(where["train", "seed"], text) == "x"
    assert where["train", "seed"].line == 4


def test_later_overrides_are_stronger():
    found = composed({"a": 1}, overrides=("a=2", "a=3"))
    assert found.data == {"a": 3}


# ── references ───────────────────────────────────────────────────────────────────────────────────


def test_references():
    found = composed(
        {
            "name": "run-${batch.global}",
            "batch": {"global": 64, "same": "${.global}", "up": "${..name}"},
            "copy": "${batch}",
            "list": [1, "${list[0]}", "${list.0}"],
            "text": r"\${not.me} ${batch.global}%",
            "through": "${copy.global}",
        }
    )
    assert not found.faults
    assert found.data == {
        "name": "run-64",
        "batch": {"global": 64, "same": 64, "up": "run-64"},
        "copy": {"global": 64, "same": 64, "up": "run-64"},
        "list": [1, 1, 1],
        "text": "${not.me} 64%",
        "through": 64,
    }


REFERENCES = st.sampled_from(
    [
        "${a}",
        "${b}",
        "${c.a}",
        "${c}",
        "${.a}",
        "${..b}",
        "${a",
        "${oc.env:HOME}",
        "${x:1}",
        "${}",
        "${a}${b}",
        "x${a}",
        r"\${a}",
        r"\\${a}",
        "${a.${b}}",
        "${${a}}",
        "${ a }",
        "$",
        "{a}",
        "${a:b}",
        "${c[a]}",
        "${c.d[0]}",
        "${oc.create:${a}}",
        "${.}",
        "${a}}",
        "1",
        "${zero.stage}",
    ]
)
REFERRING = st.fixed_dictionaries(
    {
        "a": REFERENCES,
        "b": REFERENCES,
        "c": st.fixed_dictionaries(
            {"a": REFERENCES, "b": REFERENCES, "d": st.lists(REFERENCES, max_size=2)}
        ),
    }
)


@given(REFERRING)
def test_what_is_accepted_is_what_omegaconf_gives_and_no_resolver_runs(document):
    ran = []
    original = DictConfig._evaluate_custom_resolver

    def spy(self, *args, **kwargs):
        ran.append(args)
        return original(self, *args, **kwargs)

    try:
        DictConfig._evaluate_custom_resolver = spy
        found = composed(document)
    finally:
        DictConfig._evaluate_custom_resolver = original
    assert not ran
    if not found.faults:
        assert found.data == OmegaConf.to_container(OmegaConf.create(document), resolve=True)


@given(REFERRING)
def test_what_omegaconf_cannot_resolve_is_refused(document):
    try:
        OmegaConf.to_container(OmegaConf.create(document), resolve=True)
    except Exception:  # noqa: BLE001  whatever it raises
        assert composed(document).faults


@given(st.lists(REFERRING, min_size=2, max_size=3))
def test_merging_follows_no_reference(documents):
    ran = []
    original = DictConfig._evaluate_custom_resolver
    try:
        DictConfig._evaluate_custom_resolver = lambda self, *args, **kwargs: ran.append(args)
        merge_values(documents)
    finally:
        DictConfig._evaluate_custom_resolver = original
    assert not ran


def test_escapes():
    assert list(references(r"\${a}")) == []
    assert [each.keys for each in references(r"\\${a}")] == [("a",)]
    assert list(references("${a:b}c")) == ["${a:b}"]
    assert list(references("${a.${b}}c")) == ["${a.${b}}", *references("${b}")]


def test_a_circle_is_reported_once_with_all_its_places():
    found = composed({"a": "${b}", "b": "${c}", "c": "${a}", "d": "${a}"})
    (fault,) = found.faults
    assert fault.id == "E0211"
    assert fault.message == "references form a circle: a → b → c → a"
    assert [(label.path, label.primary) for label in fault.labels] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]


def test_growth_is_bounded():
    rows = {"v0": "lol"} | {f"v{n}": f"${{v{n - 1}}}" * 10 for n in range(1, 30)}
    found = composed(rows)
    assert {each.id for each in found.faults} == {"E0212"}


def test_long_chains_are_refused_without_deep_recursion():
    rows = {"v0": "x"} | {f"v{n}": f"${{v{n - 1}}}" for n in range(1, 3000)}
    assert {each.id for each in composed(dict(reversed(rows.items()))).faults} == {"E0212"}


def test_a_broken_reference_is_one_fault():
    tree = layers({"a": "${nothing}", "b": "${a}"}).nodes[0]
    checked = check(tree)
    assert [each.id for each in checked.faults] == ["E0210"]
    assert checked.broken == {("a",), ("b",)}


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def test_extends_in_order(tmp_path):
    write(
        tmp_path,
        a="x: 1\ny: 1\nz: 1\n",
        b="extends: a.yaml\ny: 2\nz: 2\n",
        deep__c="z: 3\nw: 3\n",
        spec="extends: [b.yaml, deep/c.yaml]\nw: 4\n",
    )
    found = compose(read_layers(tmp_path / "spec.yaml", allow_outside=False))
    assert found.data == {"x": 1, "y": 2, "z": 3, "w": 4}
    assert [name for name, _ in found.read.digests] == [
        "spec.yaml",
        "b.yaml",
        "a.yaml",
        "deep/c.yaml",
    ]
    files = {dotted(path): Path(span.file).name for path, span in spans_of(found.tree).items()}
    assert files == {"": "spec.yaml", "x": "a.yaml", "y": "b.yaml", "z": "c.yaml", "w": "spec.yaml"}


def test_one_base_of_two_files_is_read_once(tmp_path):
    write(tmp_path, a="x: 1\nx: 2\n", b="extends: a.yaml\n", c="extends: a.yaml\n")
    write(tmp_path, spec="extends: [b.yaml, c.yaml]\n")
    found = compose(read_layers(tmp_path / "spec.yaml", allow_outside=False))
    assert [each.id for each in found.faults] == ["E0107"]
    assert len(found.read.digests) == 4


def test_paths_are_relative_to_the_file_that_names_them(tmp_path):
    write(tmp_path, base="x: 1\n", teams__a__base="extends: ../../base.yaml\n")
    write(tmp_path, teams__a__spec="extends: base.yaml\n", pyproject="")
    (tmp_path / "pyproject.toml").touch()
    found = compose(read_layers(tmp_path / "teams/a/spec.yaml", allow_outside=False))
    assert not found.faults
    assert found.data == {"x": 1}
    assert spans_of(found.tree)[("x",)].file == str(tmp_path / "base.yaml")


def test_the_project_bounds_what_is_read(tmp_path):
    write(tmp_path, outside="x: 1\n", inside__spec="extends: ../outside.yaml\n")
    path = tmp_path / "inside/spec.yaml"
    assert [f.id for f in compose(read_layers(path, allow_outside=False)).faults] == ["E0202"]
    assert compose(read_layers(path, allow_outside=True)).data == {"x": 1}
    (tmp_path / ".git").mkdir()
    assert project_root(path) == tmp_path
    assert compose(read_layers(path, allow_outside=False)).data == {"x": 1}


def test_a_link_does_not_lead_out(tmp_path):
    write(tmp_path, outside="x: 1\n", inside__spec="extends: link.yaml\n")
    (tmp_path / "inside/link.yaml").symlink_to(tmp_path / "outside.yaml")
    found = compose(read_layers(tmp_path / "inside/spec.yaml", allow_outside=False))
    assert [each.id for each in found.faults] == ["E0202"]


@pytest.mark.parametrize("name", ["pipe", "loop", "dir", "none", "nul\\0", "x" * 5000])
def test_what_is_no_file(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dir").mkdir()
    write(tmp_path, spec=f'extends: "{name}"\n')
    found = compose(read_layers(tmp_path / "spec.yaml", allow_outside=False))
    assert [each.id for each in found.faults] == ["E0201"]


def test_a_spec_that_is_no_file(tmp_path):
    found = read_layers(tmp_path / "none.yaml", allow_outside=False)
    assert [each.id for each in found.faults] == ["E0201"]
    assert not found.nodes


@pytest.mark.parametrize("name", ["loop", "dir", "nul\0", "x" * 5000, "spce.yaml"])
def test_a_spec_that_cannot_be_read(tmp_path, name):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dir").mkdir()
    write(tmp_path, spec="a: 1\n")
    (fault,) = read_layers(tmp_path / name, allow_outside=False).faults
    assert fault.id == "E0201"
    assert (fault.help == "did you mean `spec.yaml`?") == (name == "spce.yaml")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "spec.yaml")
    found = read_layers(tmp_path / "spec.yaml", allow_outside=False)
    assert [each.id for each in found.faults] == ["E0201"]


def test_many_files(tmp_path):
    names = [f"f{n}" for n in range(70)]
    write(tmp_path, **dict.fromkeys(names, "x: 1\n"))
    write(tmp_path, spec=f"extends: [{', '.join(f'{name}.yaml' for name in names)}]\n")
    found = compose(read_layers(tmp_path / "spec.yaml", allow_outside=False))
    assert {each.id for each in found.faults} == {"E0204"}


def test_doubling_bases_end(tmp_path):
    for n in range(16):
        write(tmp_path, **{f"f{n}": f"extends: [f{n + 1}.yaml, f{n + 1}.yaml]\n"})
    write(tmp_path, f16="x: 1\n")
    found = read_layers(tmp_path / "f0.yaml", allow_outside=False)
    assert {each.id for each in found.faults} == {"E0204"}
    assert len(found.nodes) < 1_000, "doubled 16 times, they would be 65,536"


def test_one_file_named_many_times_counts_each_time(tmp_path):
    large = "".join(f"  rule-{n}: a reason that is long enough to be one\n" for n in range(200))
    write(tmp_path, base=f"allow:\n{large}", spec=f"extends: [{', '.join(['base.yaml'] * 60)}]\n")
    found = read_layers(tmp_path / "spec.yaml", allow_outside=False)
    assert {each.id for each in found.faults} == {"E0204"}
    assert "hold more than 262144 bytes together" in found.faults[0].message
    assert len(found.nodes) < 30
