"""The project fuzzes itself: hostile files, random graphs and sizes, each in a child process under limits.

    python -m tests.fuzz --target onnx --hours 2 --state DIR

`seeds.py` makes valid files, `onnx_mutators.py` and `openvino_mutators.py` break them, `oracle.py` says what irc may
do with a broken one, `isolation.py` holds the child, and `campaign.py` runs for hours, buckets what is found and
shrinks it (`shrink.py`).  The choice of tools is explained in docs/adr/0018-fuzzing.md.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
if str(TESTS) not in sys.path:  # where pytest has not: the tables of cases import `cases`
    sys.path.insert(0, str(TESTS))
