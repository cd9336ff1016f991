"""Loaders side by side on real photos: `python -m bench peers` in `tools/`, or `nox -s bench -- peers`."""
