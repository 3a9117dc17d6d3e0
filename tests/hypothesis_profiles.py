"""How Hypothesis draws, for every property alike: `just test` and `just nightly` choose a profile.

None has a deadline: how long an example takes says how busy the machine is. On CI the examples
follow from the test's source alone, so no run depends on luck; each night others are drawn.
"""

from typing import Final

from hypothesis import HealthCheck, settings

EVERYDAY: Final = "everyday"
NIGHTLY: Final = "nightly"
_SLOW: Final = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
"""Checks that rest on the clock, or on how many draws a strategy drops."""


def register() -> None:
    """Make both known; the first holds unless `--hypothesis-profile` names another."""
    alike = settings(deadline=None, suppress_health_check=_SLOW, print_blob=True)
    settings.register_profile(EVERYDAY, alike, max_examples=40, derandomize=True)
    settings.register_profile(NIGHTLY, alike, max_examples=400)
    settings.load_profile(EVERYDAY)


def share(parts: int) -> settings:
    """A part of the profile's examples, for a test that is repeated for as many cases."""
    return settings(max_examples=max(settings().max_examples // parts, 1))


def share_by_day(parts: int) -> settings:
    """A part of the examples of every day, where many cases draw alike; by night all of them."""
    is_night = settings.get_current_profile_name() == NIGHTLY
    return settings() if is_night else share(parts)
