"""The command: python -m tests.fuzz --target onnx --hours 2 --state DIR"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.fuzz.files_campaign import fuzz_files
from tests.fuzz.findings import Findings
from tests.fuzz.graphs_campaign import fuzz_graphs


def main() -> int:
    """Fuzz a target until the time is over or somebody presses ^C; status 1 where anything was found."""
    ask = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    ask.add_argument("--target", choices=("onnx", "xml", "bin", "graphs"), required=True)
    ask.add_argument("--hours", type=float, default=1.0)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--state", type=Path, help="a folder to resume from and to write findings into")
    args = ask.parse_args()
    state = args.state or Path(f"fuzz-{args.target}-{args.seed}")
    state.mkdir(parents=True, exist_ok=True)
    progress = state / "progress.json"
    first = json.loads(progress.read_text("utf-8"))["number"] if progress.exists() else 0
    findings = Findings(state)
    began = time.monotonic()

    def after_batch(number: int) -> None:
        progress.write_text(json.dumps({"number": number, "seed": args.seed}), "utf-8")
        speed = (number - first) / (time.monotonic() - began)
        print(f"\r{number} mutants, {speed:.0f}/s, {len(findings.counts)} buckets", end="", file=sys.stderr, flush=True)

    try:
        until = began + args.hours * 3600
        if args.target == "graphs":
            fuzz_graphs(args.seed, findings, until, first, after_batch=after_batch)
        else:
            fuzz_files(args.target, args.seed, findings, until, first, after_batch=after_batch)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    print(findings.summary())
    return int(bool(findings.counts))


if __name__ == "__main__":
    sys.exit(main())
