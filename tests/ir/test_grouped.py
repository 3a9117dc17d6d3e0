"""What is put together from the texts of groups is what would be written of the whole plan."""

from hashlib import sha256

from tests.small_spec import SPEC

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.recollection import PlanRenderer
from tunec.compiler.rendering import header_of


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
