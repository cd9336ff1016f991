"""Run a group of benchmarks: `python -m bench shards --rounds 5`, from `tools/` with everything installed.

`peers`, `gpu`, `step` and `resume` are groups with options of their own: `python -m bench peers --help`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from bench import loader, shard_tools
from bench.paired import as_table, machine, measure_here, run_rounds, to_json

__all__ = ["main"]

GROUPS = {"loader": loader, "shards": shard_tools}


def main() -> None:
    """Run the group that the first argument names."""
    # Imported on use: what the other groups time is to be a process that has imported nothing of ours.
    if sys.argv[1:2] == ["peers"]:
        from bench.peers import command

        command.main(sys.argv[2:])
    elif sys.argv[1:2] == ["gpu"]:
        from bench import gpu

        gpu.main(sys.argv[2:])
    elif sys.argv[1:2] == ["step"]:
        # As the command does it, and before torch is imported: threads of OpenMP that wait must not spin.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        from bench import step

        step.main(sys.argv[2:])
    elif sys.argv[1:2] == ["resume"]:
        from bench import resume

        resume.main(sys.argv[2:])
    else:
        run_group()


def run_group() -> None:
    """Make the data, run the rounds, print the tables."""
    parser = argparse.ArgumentParser(prog="bench", description="Time wds against its peers, side by side.")
    parser.add_argument("group", choices=sorted(GROUPS))
    parser.add_argument("--rounds", type=int, default=5, help="paired rounds, after one that is not counted")
    parser.add_argument("--only", default="", help="subjects whose name begins so")
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--data", type=Path, help="folder to keep the data in (default: a temporary one)")
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    group = GROUPS[chosen.group]
    if chosen.one:
        run = measure_here(group.SUBJECTS[chosen.one], data=chosen.data, scratch=chosen.scratch)
        print(to_json(run))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = chosen.data or Path(folder) / "data"
        group.make_data(data, num_pictures=chosen.pictures)
        names = [name for name in group.SUBJECTS if name.startswith(chosen.only)]
        runs = run_rounds(
            chosen.group,
            names,
            data=data,
            scratch=Path(folder) / "scratch",
            rounds=chosen.rounds,
            say=lambda line: print(line, file=sys.stderr),
        )
    claims = [claim for claim in group.CLAIMS if {claim.subject, claim.peer} <= runs.keys()]
    print(machine(group.versions()), f"{chosen.pictures} pictures, {chosen.rounds} rounds", "", sep="\n")
    print(as_table(runs, claims))


if __name__ == "__main__":
    main()
