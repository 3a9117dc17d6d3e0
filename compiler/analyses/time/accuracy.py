"""The account's error on the published runs that judge it; generated with its accuracy page.

`tests/analyses/time/page.py` computes it; `just generate` renews it.
"""

from typing import Final

RUNS: Final = 339
"""Number of runs, from sources to which nothing was fitted."""
HALF: Final = 0.11
"""Half of the runs are within this share of the account, above or below."""
MOST: Final = 0.71
"""Nine in ten runs are within this share."""
LATE: Final = 0.72
"""One in ten runs takes longer than accounted by more than this share, if a source counts by the
root of its runs, as in the fit: one source with many runs of one model does not decide."""
