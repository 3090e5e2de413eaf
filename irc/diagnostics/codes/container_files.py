"""IRC1084..1089: where the weights of a model may be, and that they stay what they were."""

from irc.diagnostics.code import Code

BIN_OUTSIDE = Code(
    "IRC1084",
    "error",
    "Weights file outside the model's folder",
    "{bin} leads out of the model's folder: {reason} (the Const needs {size} bytes at offset {offset})",
    why="A model must not read files of its own choice, so the .bin, symbolic links followed, lies in the folder of "
    "the .xml: where the .xml was asked for or, where that is a link itself, where the file really is.",
    example="model.bin that is a link to /etc/shadow",
    fix="Put the file itself (a copy or a hard link) beside the .xml, or name the folder that the link leads to in the "
    "environment variable IRC_DATA_FOLDERS, which lists folders that links of models may lead to.",
    help="copy the file beside the .xml, or set IRC_DATA_FOLDERS to the folder that the link leads to",
)
DATA_CHANGED = Code(
    "IRC1085",
    "error",
    "Weights file changed while it was in use",
    "{file} has changed since the model was read: {reason}",
    why="Constants are read when they are needed. Size and time of the file tell whether it is still what was checked.",
    example="model.bin copied again, or cut short, between irc.load and irc.compile",
    fix="Load the model again when the file is complete.",
    help="load the model again",
)
