"""``python -m wds``, for where another tool's ``wds`` comes first on the path."""

from __future__ import annotations

from wds.app import main

if __name__ == "__main__":
    main()
