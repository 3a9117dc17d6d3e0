import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
ROOT = Path(__file__).parents[2]
for folder in ("benchmarks", "tests/analyses/memory"):
    if str(ROOT / folder) not in sys.path:
        sys.path.append(str(ROOT / folder))
