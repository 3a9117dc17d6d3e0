"""What is derived is fresh, the picture of the house among it, and the check can tell."""

from functools import cache
from pathlib import Path

import docs.generate as docs_generate
import pytest
from docs.picture import _reached, boxes, drawn, imports, picture, reduced, through
from docs.readme import CommandFailed, readme

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate():
    """The generator, which derives the pages once: the same sources give the same pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docs_generate, "derived", cache(docs_generate.derived))
        yield docs_generate


def test_every_page_is_fresh(generate):
    derived = generate.derived()
    stale = [path for path, text in derived.items() if (ROOT / path).read_text("utf-8") != text]
    assert stale == []


def test_check_names_a_stale_page_and_leaves_it(generate, tmp_path, capsys):
    for path, text in generate.derived().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    assert generate.main(["--check"], tmp_path) == 0
    (tmp_path / "docs/slots.md").write_text("old\n", "utf-8")
    assert generate.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "stale: docs/slots.md\n"
    assert (tmp_path / "docs/slots.md").read_text("utf-8") == "old\n"
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0


def test_every_slot_and_code_is_in_its_page(generate):
    from tunec.compiler.diagnostics.codes import known_codes
    from tunec.compiler.ir.slots import SLOTS

    assert all(f"`{path}`" in generate.slots_page() for path in SLOTS)
    assert all(f"[{code}]" in generate.codes_page() for code in known_codes())


@pytest.mark.parametrize(
    ("shown", "status", "printed"),
    [
        ("$ tunec plan nowhere.yaml\nfits: 3 GiB\n", 1, "error[E0201]: cannot read `nowhere.yaml`"),
        ("$ tunec plan\nerror[E0201]: none\n", 2, "the following arguments are required: SPEC"),
        ("$ tunec catalog devices | grep -e 'no such device'\n", 1, "no such device'\n"),
        ("$ no-such-program\n", 127, "no-such-program"),
    ],
)
def test_a_failing_command_stops_the_readme_with_its_output(shown, status, printed):
    with pytest.raises(CommandFailed) as caught:
        readme(f"```console\n{shown}```\n")
    assert str(caught.value).startswith(
        f"README.md: status {status}: {shown.partition(chr(10))[0]}"
    )
    assert printed in str(caught.value)


def test_a_fault_may_be_shown():
    text = "```console\n$ tunec plan nowhere.yaml\nerror[E0201]: an old text\n```\n"
    assert "error[E0201]: cannot read `nowhere.yaml`" in readme(text)


def test_a_failing_command_leaves_every_file(generate, tmp_path, capsys, monkeypatch):
    def failing():
        raise CommandFailed("README.md: status 70: $ tunec plan\nKeyError")

    monkeypatch.setattr(generate, "derived", failing)
    assert generate.main([], tmp_path) == 1
    assert capsys.readouterr().err == "README.md: status 70: $ tunec plan\nKeyError\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def seen():
    return through(boxes(imports()), frozenset(drawn()))


def test_every_package_is_drawn(seen):
    text = picture()
    for name in ("targets/trl", "compiler/lints", "compiler/driver", "compiler/ir"):
        assert f"    {name.replace('/', '_')}[{name.rpartition('/')[2]}]\n" in text
    assert 'face["src/tunec"] --> targets --> compiler --> schemas\n' in text
    assert set(seen) == set(drawn())


def test_what_is_left_out_follows_from_what_is_drawn(seen):
    arrows = reduced(seen)
    assert sum(map(len, arrows.values())) < sum(map(len, seen.values()))
    for each in seen:
        assert _reached(each, arrows) == _reached(each, seen)


def test_arrows_through_others_are_kept_and_those_that_follow_are_not():
    edges = {
        "a": frozenset({"loose", "c"}),
        "loose": frozenset({"b"}),
        "b": frozenset({"c"}),
        "c": frozenset(),
    }
    seen = through(edges, frozenset("abc"))
    assert seen == {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert reduced(seen) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_nothing_goes_up():
    order = ("schemas", "compiler", "targets")
    for each, others in boxes(imports()).items():
        own = order.index(each.split("/")[0])
        assert all(order.index(other.split("/")[0]) <= own for other in others), each
