"""The benchmarks are run, not installed: they are found in `tools/`, behind everything that is installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))
