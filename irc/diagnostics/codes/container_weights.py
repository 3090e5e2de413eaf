"""IRC1070..1089: Const layers, the .bin, and where weights may be."""

from irc.diagnostics.code import Code

# ------------------------------------------------------------------ Const and the .bin
CONST_ATTRIBUTE_MISSING = Code(
    "IRC1070",
    "error",
    "Const attribute missing",
    "<data> of the Const has no {attribute}",
    "element_type, shape, offset and size say what to read from the .bin.",
    '<data element_type="f32" shape="3" offset="0" /> (no size)',
    "Add the attribute.",
    'add {attribute}="..."',
)
CONST_NUMBER_INVALID = Code(
    "IRC1071",
    "error",
    "Bad offset or size",
    '{attribute}="{text}" of the Const is not a number from 0 to 2^63-1',
    "It counts bytes from the start of the .bin.",
    'offset="18446744073709551612"',
    "Write the number of bytes.",
    "write the number of bytes",
)
CONST_SHAPE_NEGATIVE = Code(
    "IRC1072",
    "error",
    "Const with an unknown size",
    'shape "{shape}" of the Const has {value}; the sizes of a constant are known',
    "-1 stands for an unknown size, which stored data cannot have.",
    '<data element_type="f32" shape="-1" offset="0" size="12" />',
    "Write the sizes of the stored data.",
    "write the sizes of the stored data",
)
CONST_TOO_LARGE = Code(
    "IRC1073",
    "error",
    "Const larger than any memory",
    'shape "{shape}" of the Const has {elements} elements of {type}, more than can be addressed',
    "The number of elements overflows 64-bit arithmetic, or the shape has more axes than an array can have;"
    " the file is damaged or hostile.",
    'shape="4611686018427387904,4"',
    "Correct the shape.",
    "correct the shape",
)
CONST_SIZE_SMALL = Code(
    "IRC1074",
    "error",
    "Const shorter than its shape",
    'size is {size} bytes, but {type} with shape "{shape}" needs {needed}',
    "The stored bytes must hold every element of the shape.",
    '<data element_type="f32" shape="3" offset="0" size="8" />',
    "Correct size, shape or element_type.",
    "correct size, shape or element_type",
)
CONST_SIZE_LARGE = Code(
    "IRC1075",
    "warning",
    "Const longer than its shape",
    'size is {size} bytes, but {type} with shape "{shape}" needs only {needed}; the rest is ignored',
    "OpenVINO ignores the surplus, but the shape or the type may be wrong.",
    '<data element_type="f32" shape="3" offset="0" size="16" />',
    "Correct size, shape or element_type.",
    'write size="{needed}"',
)
CONST_OUTSIDE = Code(
    "IRC1076",
    "error",
    "Const outside the .bin",
    "the Const is at offset {offset} with {size} bytes, but {bin} has only {available} bytes",
    "The weights file is shorter than the .xml expects: cut off while copying, or belonging to another model.",
    'offset="4" size="12" with a .bin of 12 bytes',
    "Copy the .bin again, or export both files again; they must come from the same export.",
    "copy the .bin again; .xml and .bin must come from the same export",
)
CONST_STRING_DAMAGED = Code(
    "IRC1077",
    "error",
    "Damaged string constant",
    "the string Const at offset {offset} with {size} bytes is damaged: {problem}",
    "String data is a 32-bit count, count + 1 rising 32-bit offsets from 0, and the UTF-8 bytes.",
    "an offset beyond the end of the text",
    "Export the model again.",
    "export the model again",
)
CONST_TYPE_DYNAMIC = Code(
    "IRC1078",
    "error",
    "Const without a definite type",
    'element_type "{text}" says nothing about how the data of the Const is stored',
    "Stored data has a definite type.",
    '<data element_type="dynamic" shape="3" ... />',
    "Write the type of the stored data.",
    "write the type of the stored data",
)
BIN_MISSING = Code(
    "IRC1080",
    "error",
    "Weights file missing",
    "there is no {bin} beside the .xml, but the Const needs {size} bytes at offset {offset} of it",
    "Constants are stored in a .bin of the same name in the same folder.",
    "model.xml copied without model.bin",
    "Put the .bin beside the .xml, under the same name.",
    "put {bin} beside the .xml",
)
BIN_LFS = Code(
    "IRC1081",
    "error",
    "Weights file is a Git LFS pointer",
    "{bin} is a Git LFS pointer, not the weights (the Const needs {size} bytes at offset {offset})",
    "The repository was cloned without Git LFS, so the large file is still on the server.",
    'a .bin of 130 bytes that begins with "version https://git-lfs.github.com/spec/v1"',
    "Run `git lfs pull` in the repository.",
    "run `git lfs pull` in the repository",
)
BIN_IS_XML = Code(
    "IRC1082",
    "error",
    "Weights file is XML",
    "{bin} is an XML or HTML file, not the weights (the Const needs {size} bytes at offset {offset})",
    "The .xml was copied over the .bin, or a download saved an error page.",
    "a .bin that begins with <?xml or <!DOCTYPE html>",
    "Copy or download the .bin again.",
    "copy or download the .bin again",
)
BIN_UNREADABLE = Code(
    "IRC1083",
    "error",
    "Weights file cannot be read",
    "cannot read {bin}: {reason} (the Const needs {size} bytes at offset {offset})",
    "The operating system refused to open or map the weights file.",
    "a .bin without read permission, or a folder of that name",
    "Check the file and its permissions.",
    "check the file and its permissions",
)

# ------------------------------------------------------------------ where weights may be
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
