"""How far the account is off on the published runs that judge it: written by its accuracy page.

`tests/analyses/time/page.py` works it out, and `test_step_times.py` fails when it is stale.
"""

from typing import Final

RUNS: Final = 139
"""Of sources that nothing was fitted to."""
HALF: Final = 0.08
"""Half of them take at most this share more or less."""
MOST: Final = 0.26
"""Nine in ten do."""
LATE: Final = 0.26
"""One in ten takes longer than accounted by more than this."""
