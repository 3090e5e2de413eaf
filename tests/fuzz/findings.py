"""What was found: a folder for each bucket with the first files that fell into it, and how often that happened."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.oracle import Finding

Files = dict[str, bytes]


@dataclass
class Findings:
    """Buckets; with a folder they are written down as they are found, and read again when a campaign goes on."""

    folder: Path | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])
    first: dict[str, tuple[Finding, Files, str]] = field(default_factory=dict[str, tuple[Finding, Files, str]])

    def __post_init__(self) -> None:
        if self.folder is not None and (self.folder / "buckets.json").exists():
            self.counts = json.loads((self.folder / "buckets.json").read_text("utf-8"))

    def add(self, finding: Finding, files: Files, origin: str, again: bool = False) -> None:
        """Count a finding; of a bucket the smallest files are kept.  `again`: one that was counted, but smaller."""
        bucket = finding.bucket
        self.counts[bucket] = self.counts.get(bucket, 0) + (not again)
        before = self.first.get(bucket)
        if before is None or size(files) < size(before[1]):
            self.first[bucket] = finding, files, origin
            self.write(bucket)
        if self.folder is not None:
            (self.folder / "buckets.json").write_text(json.dumps(self.counts, indent=1), "utf-8")

    def write(self, bucket: str) -> None:
        """Write a bucket's files, and what was found."""
        if self.folder is None:
            return
        finding, files, origin = self.first[bucket]
        place = self.folder / name_of(bucket)
        place.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (place / name).write_bytes(data)
        (place / "finding.txt").write_text(
            f"{bucket}\n{origin}\n\n{finding.detail}\n", "utf-8", errors="backslashreplace"
        )

    def summary(self) -> str:
        """The buckets, most frequent first."""
        rows = sorted(self.counts.items(), key=lambda row: -row[1])
        return "\n".join(
            f"{count:6d}  {bucket}" + (f"  [{name_of(bucket)}]" if self.folder else "") for bucket, count in rows
        )


def name_of(bucket: str) -> str:
    """A folder's name: something to recognise, and a hash."""
    words = "".join(c if c.isalnum() else "-" for c in bucket)[:60].strip("-")
    return f"{words}-{hashlib.sha256(bucket.encode()).hexdigest()[:8]}"


def size(files: Files) -> int:
    return sum(map(len, files.values()))
