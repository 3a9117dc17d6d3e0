"""Caches that enter themselves are emptied where they hold much."""

from tunec.compiler.ir.caches import cached, forget


def test_what_holds_much_is_emptied():
    asked = []

    @cached(8)
    def small(at: int) -> int:
        asked.append(at)
        return at

    @cached(8)
    def large(at: int) -> int:
        asked.append(at)
        return at

    def ask() -> list[int]:
        asked.clear()
        small(0)
        for at in range(10, 15):
            large(at)
        return list(asked)

    assert ask() == [0, 10, 11, 12, 13, 14]
    assert ask() == []
    forget(more_than=1)
    assert ask() == [10, 11, 12, 13, 14]
    forget(more_than=0)
    assert ask() == [0, 10, 11, 12, 13, 14]


def test_what_is_asked_least_goes_first():
    found = cached(2)(lambda at: [at])
    first = found(1)
    assert found(1) is first
    found(2)
    found(3)
    assert found(1) is not first
