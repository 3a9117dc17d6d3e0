"""What is put together or remembered is what the whole plan, or the function, would give."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from tests.small_spec import SPEC

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.recollection import PlanRenderer, Recollection
from tunec.compiler.rendering import header_of


def function(ask):
    """Asks for `b` only where `a` is small, and for `c` only after that."""
    if ask("a") > 1:
        return "large"
    return ask("c") if ask("b") else "small"


def watched(subject):
    asked = {}

    def ask(question):
        asked[question] = subject[question]
        return subject[question]

    return function(ask), asked


SUBJECTS = st.fixed_dictionaries({name: st.integers(0, 3) for name in "abcd"})


@given(st.lists(SUBJECTS, max_size=40))
def test_recalled_is_what_the_function_gives(subjects):
    known = Recollection()
    asked_before = []
    for subject in subjects:
        result, asked = watched(subject)
        found = known.recall(subject.__getitem__)
        assert found == (result if asked in asked_before else None)
        if found is None:
            known.keep(asked, result)
            asked_before.append(asked)
    assert known.size == len(asked_before)


def test_nothing_asked_is_one_result():
    known = Recollection()
    assert known.recall(lambda _: 0) is None
    known.keep({}, "always")
    assert known.recall(lambda _: 0) == "always"


def test_other_ways_on_from_the_same_answers():
    known = Recollection()
    known.keep({"a": 1, "b": 2}, "by b")
    known.keep({"a": 1, "c": 3}, "by c")
    assert known.recall({"a": 1, "b": 2, "c": 0}.get) == "by b"
    assert known.recall({"a": 1, "b": 0, "c": 3}.get) == "by c"
    assert known.recall({"a": 1, "b": 0, "c": 0}.get) is None


def test_a_result_is_recalled_where_all_that_was_read_says_the_same() -> None:
    found: Recollection = Recollection()
    found.keep({("a",): 1, ("b",): 2}, "first")
    found.keep({("a",): 1, ("b",): 3, ("c",): 4}, "second")
    found.keep({("d",): 5}, "third")
    assert found.recall({("a",): 1, ("b",): 2}.__getitem__) == "first"
    assert found.recall({("a",): 1, ("b",): 3, ("c",): 4}.__getitem__) == "second"
    assert found.recall({("a",): 1, ("b",): 3, ("c",): 9, ("d",): 5}.__getitem__) == "third"
    assert found.recall({("a",): 1, ("b",): 3, ("c",): 9, ("d",): 6}.__getitem__) is None
    assert found.size == 3


def test_a_result_that_rests_on_nothing_always_comes() -> None:
    found: Recollection = Recollection()
    found.keep({}, "always")
    assert found.recall({}.__getitem__) == "always"


def test_a_group_is_written_once() -> None:
    written: list[str] = []

    def write(values: object) -> str:
        written.append(str(values))
        return str(values)

    grouped, planned = PlanRenderer("test", write), plan(load_text(SPEC)).plan
    assert planned is not None
    first = grouped.texts(planned)
    assert grouped.texts(planned) == first
    assert written == list(first.values())


def test_the_header_digests_all_slots_in_the_order_of_their_paths() -> None:
    loaded = load_text(SPEC)
    planned = plan(loaded).plan
    assert planned is not None
    decided = [(path, repr(value)) for path, value in sorted(planned.values().items())]
    (line,) = header_of(loaded, planned)
    assert line.endswith(f"plan {sha256(repr(decided).encode()).hexdigest()[:16]}")
