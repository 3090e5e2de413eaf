"""Fuzz irc for hours: python -m tests.fuzz --target onnx --hours 2 --state DIR

Goes on where it was when it is started with the same folder.  Status 1 where anything has been found.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.files_campaign import examine_files, fuzz_files, warm_up
from tests.fuzz.findings import Files, Findings
from tests.fuzz.graphs_campaign import fuzz_graphs
from tests.fuzz.shrink import shrink
from tests.fuzz.sizes_campaign import fuzz_sizes, run_sanitized

TARGETS = ("onnx", "xml", "bin", "graphs", "sizes")


def main() -> int:
    """Fuzz a target until the time is over or somebody presses ^C."""
    ask = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    ask.add_argument("--target", choices=TARGETS, required=True)
    ask.add_argument("--hours", type=float, default=1.0)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--jobs", type=int, default=1, help="processes, the others with the seeds after this one")
    ask.add_argument("--state", type=Path, help="a folder to resume from and to write findings into")
    ask.add_argument(
        "--shrink", action="store_true", help="make the files that were found smaller when the time is over"
    )
    args = ask.parse_args()
    state = args.state or Path(f"fuzz-{args.target}-{args.seed}")
    state.mkdir(parents=True, exist_ok=True)
    others = [start(args, args.seed + k, state / f"seed-{args.seed + k}") for k in range(1, args.jobs)]
    if args.target == "sizes":
        run_sanitized(state)
    findings = Findings(state)
    try:
        fuzz(args.target, args.seed, args.hours, state, findings)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    if args.shrink and args.target in ("onnx", "xml", "bin"):
        shrink_all(findings)
    print(findings.summary())
    return int(any([bool(findings.counts), *[other.wait() for other in others]]))


def start(args: argparse.Namespace, seed: int, state: Path) -> subprocess.Popen[bytes]:
    """Another process of this command, with a seed and a folder of its own."""
    command = [sys.executable, "-m", "tests.fuzz", "--target", args.target, "--hours", str(args.hours)]
    command += ["--seed", str(seed), "--state", str(state), *["--shrink"] * args.shrink]
    return subprocess.Popen(command)


def fuzz(target: str, seed: int, hours: float, state: Path, findings: Findings) -> None:
    """Go on from the number that the folder says."""
    progress = state / "progress.json"
    first = json.loads(progress.read_text("utf-8")).get(str(seed), 0) if progress.exists() else 0
    began = time.monotonic()

    def after_batch(number: int) -> None:
        progress.write_text(json.dumps({str(seed): number}), "utf-8")
        speed = (number - first) / (time.monotonic() - began)
        said = f"{target} seed {seed}: {number} examined, {speed:.1f}/s, {len(findings.counts)} buckets"
        print(f"\r{said}", end="", file=sys.stderr, flush=True)

    until = began + hours * 3600
    if target == "graphs":
        fuzz_graphs(seed, findings, until, first, after_batch=after_batch)
    elif target == "sizes":
        fuzz_sizes(seed, findings, until, first, after_batch=after_batch)
    else:
        fuzz_files(target, seed, findings, until, first, after_batch=after_batch)


def shrink_all(findings: Findings) -> None:
    """Replace the files of each bucket by smaller ones that fall into it too."""
    warm_up()
    for bucket, (finding, files, origin) in list(findings.first.items()):

        def fails(candidate: Files, bucket: str = bucket) -> bool:
            return any(f.bucket == bucket for f in examine_files(candidate).findings)

        findings.add(finding, shrink(files, fails), origin, again=True)


if __name__ == "__main__":
    sys.exit(main())
