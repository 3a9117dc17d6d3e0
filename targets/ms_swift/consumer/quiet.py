"""ms-swift without its log, and without what it would fetch."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def quietly() -> Iterator[None]:
    """Import and run with the log off and the hub not asked; what is left behind is undone."""
    around = {"LOG_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "MODELSCOPE_OFFLINE": "1"}
    before = logging.root.manager.disable
    with patch.dict(os.environ, around):
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
