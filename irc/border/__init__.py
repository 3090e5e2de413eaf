"""The border: where a file's layers become canonical operations and back.

`read` turns a `RawModel` into a `Model` by the forms of `irc.ops`; `write` turns it back.  A quirk of a
format or a version ends here.
"""

from irc.border.read import read_model
from irc.border.write import WriteOptions, write_model

__all__ = ["WriteOptions", "read_model", "write_model"]
