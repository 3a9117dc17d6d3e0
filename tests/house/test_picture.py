"""The picture of the house shows its imports: all of them, and no other."""

import pytest
from docs.picture import _reached, boxes, drawn, imports, picture, reduced, through


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
