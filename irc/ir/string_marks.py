"""How values are marked that strings are made of (`irc.layout.texts`): keys of `Value.extras`."""

STRING = "strings"
"""The last axis of an input or output is a string, as a pointer and a number of bytes."""
KEPT = "kept"
"""Other memory points to this tensor's, so that it lasts to the end of the run."""
