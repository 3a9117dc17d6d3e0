"""ms-swift without its log and its downloads."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def quietly() -> Iterator[None]:
    """Run without log and hub, and restore both."""
    around = {"LOG_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "MODELSCOPE_OFFLINE": "1"}
    before = logging.root.manager.disable
    with patch.dict(os.environ, around):
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
