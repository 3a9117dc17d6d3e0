"""The account's error on the published runs that judge it; generated with its accuracy page.

`tests/analyses/time/page.py` computes it, and `test_step_times.py` fails if it is stale.
"""

from typing import Final

RUNS: Final = 173
"""Number of runs, from sources to which nothing was fitted."""
HALF: Final = 0.08
"""Half of the runs are within this share of the account, above or below."""
MOST: Final = 0.38
"""Nine in ten runs are within this share."""
LATE: Final = 0.36
"""One in ten runs takes longer than accounted by more than this share."""
