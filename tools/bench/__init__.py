"""Side-by-side timing of `wds` against its peers: `python -m bench GROUP` in `tools/`, or `nox -s bench -- GROUP`."""
