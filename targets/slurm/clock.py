"""Durations in sbatch's format: `1-12:30:00` and its shorter forms."""

import re
from typing import Final

_DAYS: Final = re.compile(r"(\d{1,4})-(\d{1,4})(?::(\d{1,4}))?(?::(\d{1,4}))?")
_PLAIN: Final = re.compile(r"(?:(\d{1,6}):)?(\d{1,6})(?::(\d{1,6}))?")
"""src/common/parse_time.c `time_str2secs`: days-hours[:minutes[:seconds]], else minutes[:seconds]
or hours:minutes:seconds."""


def written(seconds: int) -> str:
    """Seconds as `2-03:04:05`, without the days if there are none."""
    hours, rest = divmod(seconds, 3600)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def seconds_of(text: str) -> int | None:
    """The seconds of a duration; None for words (`UNLIMITED`) and other forms."""
    found = _DAYS.fullmatch(text)
    if found:
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = [int(each) for each in text.split(":")] if _PLAIN.fullmatch(text) else []
    if len(parts) == 3:
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    return (parts[0] * 60 + (parts[1] if len(parts) == 2 else 0)) if parts else None
