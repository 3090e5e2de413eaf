"""The ONNX file itself: what it is, how it parses, its tensors, names and order (IRC14xx to IRC16xx)."""

from irc.diagnostics.code import Code

# ------------------------------------------------------------------ 140x: the file
FILE_UNREADABLE = Code(
    "IRC1401",
    "error",
    "The model file cannot be read",
    "cannot read {path}: {reason}",
    why="The path does not name a regular file that this user may read.",
    example="irc info missing.onnx",
    fix="Check the path, and that the file is readable.",
    help="{advice}",
)
FILE_EMPTY = Code(
    "IRC1402",
    "error",
    "The model file is empty",
    "{path} has no content",
    why="A download or an export that was interrupted leaves an empty file behind.",
    example="irc info empty.onnx      (0 bytes)",
    fix="Fetch or export the model again.",
    help="fetch or export the model again",
)
GIT_LFS_POINTER = Code(
    "IRC1403",
    "error",
    "A Git LFS pointer instead of the model",
    "{path} is a Git LFS pointer, not the model itself",
    why="A repository cloned without Git LFS holds small text files that only name the real content.",
    example="version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21...\nsize 102442450",
    fix="Run `git lfs pull` in the repository, or download the file itself.",
    help="run `git lfs pull` where the file comes from",
)
NOT_ONNX = Code(
    "IRC1404",
    "error",
    "Not an ONNX file",
    "{path} is {found}, not an ONNX model",
    why="The beginning of the file is that of another format; ONNX is a binary protobuf message.",
    example="an OpenVINO .xml, a PyTorch .pt or a text file that was renamed to model.onnx",
    fix="Give the file its right extension, or export it to ONNX first.",
    help="{advice}",
)
PARSE_FAILED = Code(
    "IRC1405",
    "error",
    "The ONNX protobuf cannot be parsed",
    "cannot parse {path} as an ONNX ModelProto ({size} bytes): {reason}",
    why="The file is truncated or damaged, nests subgraphs deeper than protobuf allows, or is no ONNX file at all.",
    example="head -c 1000 model.onnx > broken.onnx; irc info broken.onnx",
    fix="Compare its size or checksum with the original, and fetch or export it again.",
    help="{advice}",
)
NO_GRAPH = Code(
    "IRC1406",
    "error",
    "The file holds no graph",
    "{path} parses as protobuf but holds no graph",
    why="Many files that are no models happen to parse as protobuf messages. A model always has a graph.",
    example="a TensorProto (.pb of a test case) given as a model",
    fix="Give a file that holds an onnx.ModelProto.",
    help="give a file that holds an onnx.ModelProto",
)
FILE_TOO_BIG = Code(
    "IRC1407",
    "error",
    "The protobuf is over 2 GB",
    "{path} has {size} bytes; protobuf messages end at 2 GB",
    why="Protobuf cannot read a message of 2 GiB or more, so such a file was never readable.",
    example="a model of 3 GB saved with its weights inside",
    fix="Save the model with external data (onnx.save_model(..., save_as_external_data=True)).",
    help="export the model with external data",
)
BAD_TEXT = Code(
    "IRC1408",
    "error",
    "A name is not UTF-8",
    "{what} holds bytes that are not UTF-8: {text}",
    why="Protobuf strings are UTF-8. A name that is not cannot be written back or shown.",
    example="a node named b'conv\\xff1'",
    fix="Rename it in the program that wrote the model.",
    help="rename it in the program that wrote the model",
)
TOO_DEEP = Code(
    "IRC1409",
    "error",
    "Nested too deeply",
    "{what} nests deeper than {limit} levels",
    why="Subgraphs and types that nest without end would exhaust the stack of every tool that reads them.",
    example="an If inside an If, 70 times",
    fix="Flatten the nested subgraphs in the program that wrote the model.",
    help="flatten the nesting in the program that wrote the model",
)

# ------------------------------------------------------------------ 142x: versions and metadata
IR_VERSION_NEWER = Code(
    "IRC1421",
    "warning",
    "The ir_version is newer than the onnx package",
    "the model says ir_version {version}; the installed onnx {package} knows up to {known}",
    why="Fields that a later ONNX added are unknown to the installed package, and are not kept.",
    example="ir_version: 99",
    fix="Upgrade the onnx package.",
    help="upgrade the onnx package",
)
IR_VERSION_MISSING = Code(
    "IRC1422",
    "warning",
    "No ir_version",
    "the model says no ir_version; version {assumed} is assumed",
    why="The ONNX specification requires ir_version.",
    example="a ModelProto built by hand without ir_version",
    fix="Set ModelProto.ir_version.",
    help="set ModelProto.ir_version",
)
OPSET_MISSING = Code(
    "IRC1423",
    "warning",
    "No opset_import for a domain",
    'no opset_import for domain "{domain}"; version 1 is assumed',
    why="Without opset_import the meaning of the operations is not known. Files with ir_version below 3 have none, "
    "and mean opset 1.",
    example="ir_version: 8, and an empty opset_import",
    fix="Add the domain to ModelProto.opset_import (or to FunctionProto.opset_import inside a function).",
    help="add the domain to opset_import",
)
OPSET_CONFLICT = Code(
    "IRC1424",
    "error",
    "A domain is imported twice",
    'domain "{domain}" is imported as version {first} and as version {second}',
    why='A domain has one version in a model; "" and "ai.onnx" are the same domain.',
    example='opset_import { domain: "" version: 13 } opset_import { domain: "ai.onnx" version: 17 }',
    fix="Keep one of them.",
    help="keep one of the two",
)
DUPLICATE_KEY = Code(
    "IRC1425",
    "warning",
    "A metadata key occurs twice",
    'metadata key "{key}" occurs more than once; the last value is kept',
    why="The keys of metadata_props have to be distinct.",
    example='metadata_props { key: "author" value: "a" } metadata_props { key: "author" value: "b" }',
    fix="Remove all but one.",
    help="remove all but one",
)
OPSET_INVALID = Code(
    "IRC1426",
    "error",
    "An opset version is not positive",
    'domain "{domain}" is imported as version {version}; versions start at 1',
    why="Opset versions start at 1.",
    example='opset_import { domain: "" version: 0 }',
    fix="State the version that the model was written for.",
    help="state the version that the model was written for",
)

# ------------------------------------------------------------------ 144x: tensors
TENSOR_TYPE = Code(
    "IRC1441",
    "error",
    "Unknown element type",
    'tensor "{name}" has element type {value}, which ONNX does not define',
    why="data_type (or elem_type) has to be a value of TensorProto.DataType, and a tensor's cannot be UNDEFINED.",
    example="data_type: 0",
    fix="Write the tensor again with its real element type, or upgrade irc if ONNX has a new one.",
    help="write the tensor with its real element type",
)
TENSOR_DIMS = Code(
    "IRC1442",
    "error",
    "A tensor has impossible dimensions",
    'tensor "{name}" has dims {dims}: {reason}',
    why="Dimensions are not negative, and their product fits in 63 bits.",
    example="dims: -1, or dims: 4294967296 twice",
    fix="Write the tensor again with its real dimensions.",
    help="write the tensor with its real dimensions",
)
TENSOR_SIZE = Code(
    "IRC1443",
    "error",
    "A tensor's data do not match its dims",
    'tensor "{name}" ({type}{dims}) needs {needed} {unit} but its {field} holds {found}',
    why="The number of elements that dims and data_type say has to be there, no more and no less.",
    example="dims: 3, data_type: FLOAT, raw_data of 8 bytes",
    fix="Write the tensor again; a truncated file is a common cause.",
    help="dims or data_type is wrong, or the data were cut off: write the tensor again",
)
TENSOR_FIELD = Code(
    "IRC1444",
    "error",
    "A tensor's data are in the wrong field",
    'tensor "{name}" ({type}) has its data in {field}: {reason}',
    why="Each element type has one typed field, or raw_data; exactly one field holds the data.",
    example="data_type: FLOAT with int32_data",
    fix="Write the tensor with onnx.numpy_helper.from_array.",
    help="write the tensor with onnx.numpy_helper.from_array",
)
TENSOR_SEGMENT = Code(
    "IRC1445",
    "error",
    "Segmented tensors are not supported",
    'tensor "{name}" is stored in segments',
    why="No known writer produces TensorProto.segment and no runtime reads it.",
    example="segment { begin: 0 end: 1024 }",
    fix="Write the tensor as one piece.",
    help="write the tensor as one piece",
)
SPARSE_INVALID = Code(
    "IRC1446",
    "error",
    "A sparse tensor is inconsistent",
    'sparse tensor "{name}": {reason}',
    why="Values are [NNZ]; indices are int64, [NNZ] or [NNZ, rank], ascending, without duplicates, and inside dims.",
    example="dims: 2 with indices: 5",
    fix="Write the sparse tensor again.",
    help="write the sparse tensor again",
)
SPARSE_TOO_BIG = Code(
    "IRC1447",
    "error",
    "A sparse tensor is too big when dense",
    'sparse tensor "{name}" has {bytes} bytes when dense; the limit is {limit}',
    why="irc computes with dense constants, so a sparse initializer is expanded.",
    example="dims: 1000000 1000000 with three values",
    fix="Store a smaller table, and gather from it.",
    help="store a smaller table, and gather from it",
)

# ------------------------------------------------------------------ 146x: external data
EXTERNAL_NO_FOLDER = Code(
    "IRC1461",
    "error",
    "External data without a folder",
    'tensor "{name}" keeps its data in "{location}", but the model was not read from a file',
    why="External data are found relative to the model's file; bytes and ModelProto objects have no place.",
    example='irc.load(open("model.onnx", "rb").read())',
    fix="Give the path of the model, or load the data first (onnx.load_external_data_for_model).",
    help="give irc the path of the model instead",
)
EXTERNAL_ESCAPE = Code(
    "IRC1462",
    "error",
    "External data outside the model's folder",
    'tensor "{name}" points outside the model\'s folder: "{location}" ({reason})',
    why="A model must not read files of its own choice, so data, symbolic links followed, stay inside the model's "
    "folder: where the model was asked for or, where that is a link itself, where the file really is.",
    example='location: "../../etc/passwd"',
    fix="Put the file itself (a copy or a hard link) beside the model and name it by a relative path, or name the "
    "folder that a link leads to in the environment variable IRC_DATA_FOLDERS, which lists folders that links may "
    "lead to.",
    help="put the file beside the model and name it relatively, or set IRC_DATA_FOLDERS to the folder of a link",
)
EXTERNAL_MISSING = Code(
    "IRC1463",
    "error",
    "An external data file is missing",
    'tensor "{name}" needs "{location}" beside the model: {reason}',
    why="The weights are in a file of their own, which has to travel with the model.",
    example="model.onnx without model.onnx.data",
    fix="Fetch the data file and put it where `location` says, relative to the model.",
    help="put the data file beside the model",
)
EXTERNAL_RANGE = Code(
    "IRC1464",
    "error",
    "External data do not match",
    'tensor "{name}" ({type}{dims}, {needed} bytes): offset {offset}, length {length} in "{location}" of {size} '
    "bytes: {reason}",
    why="Offset and length have to name exactly the bytes of the tensor, inside the file. Missing bytes are never "
    "taken as zeros.",
    example="offset: 4096, length: 100 in a file of 4000 bytes",
    fix="Fetch the data file again; it is probably truncated or belongs to another model.",
    help="the data file is truncated or belongs to another model",
)
EXTERNAL_ENTRY = Code(
    "IRC1465",
    "error",
    "An external data entry is wrong",
    'tensor "{name}": {key} of its external_data is {value}',
    why="`location` is required; `offset` and `length` are decimal numbers that are not negative.",
    example='external_data { key: "offset" value: "-1" }',
    fix="Save the model again with external data.",
    help="save the model again with external data",
)

# ------------------------------------------------------------------ 150x: values and types
NEGATIVE_DIM = Code(
    "IRC1501",
    "warning",
    "A declared dimension is negative",
    'axis {axis} of "{name}" is declared {value}; it is taken as unknown',
    why="dim_value is a size. A dynamic dimension has a dim_param, or neither field.",
    example="dim { dim_value: -1 }",
    fix="Use dim_param with a name, or leave the dimension empty.",
    help="use dim_param with a name",
)
OPAQUE_TYPE = Code(
    "IRC1502",
    "warning",
    "A type that irc does not know",
    '"{name}" has type {kind}, which irc keeps but does not understand',
    why="Opaque types belong to custom domains.",
    example='opaque_type { domain: "com.acme" name: "Handle" }',
    fix="Nothing, unless the model has to be compiled.",
    help="such a value can be converted to ONNX only",
)
DUPLICATE_VALUE_INFO = Code(
    "IRC1503",
    "warning",
    "A value is described twice",
    'value_info has more than one entry for "{name}"; the first is kept',
    why="value_info has one entry per name.",
    example='two value_info entries named "x"',
    fix="Run onnx.shape_inference again, or remove one of them.",
    help="remove one of them",
)

# ------------------------------------------------------------------ 152x: names and order
DUPLICATE_VALUE = Code(
    "IRC1521",
    "error",
    "A value is defined twice",
    '"{name}" is defined as {first} and as {second}',
    why="ONNX graphs are in single static assignment form: every name is defined once.",
    example="Relu(x) -> y; Sigmoid(x) -> y",
    fix="Rename one of the two, and its uses.",
    help="rename one of the two, and its uses",
)
UNDEFINED_VALUE = Code(
    "IRC1522",
    "error",
    "A value is used but never defined",
    '{user} "{name}", which nothing defines',
    why="A name has to be a graph input, an initializer, or an output of a node of this graph or of one around it.",
    example='Relu(x) -> y in a graph whose input is "X"',
    fix="Correct the name; it is case-sensitive.",
    help="{advice}",
)
CYCLE = Code(
    "IRC1523",
    "error",
    "The graph has a cycle",
    "these nodes depend on each other: {nodes}",
    why="A graph is acyclic. Recurrence is written with Loop, Scan, or state inputs and outputs.",
    example="Relu(b) -> a; Relu(a) -> b",
    fix="Break the cycle; use Loop or Scan for recurrence.",
    help="use Loop or Scan for recurrence",
)
UNSORTED = Code(
    "IRC1524",
    "warning",
    "The nodes are not in topological order",
    '"{name}" is used before it is defined; the nodes were sorted',
    why="ONNX requires that a node stands after the nodes that it depends on.",
    example="Relu(a) -> b; Relu(x) -> a",
    fix="Sort the nodes; `irc convert` writes them sorted.",
    help="`irc convert` writes the nodes sorted",
)
SHADOWED = Code(
    "IRC1525",
    "warning",
    "A name hides one of the graph around it",
    '"{name}" is defined in this graph and in one around it',
    why="ONNX asks for names that are unique in a graph and its subgraphs; the inner definition is used.",
    example='a then_branch that defines "x" where the main graph has "x" too',
    fix="Rename the inner one.",
    help="rename the inner one",
)
DUPLICATE_NODE = Code(
    "IRC1526",
    "warning",
    "Node names are not unique",
    'node name "{name}" occurs more than once',
    why="Names of nodes should be unique, because tools refer to nodes by them.",
    example='two nodes named "conv1"',
    fix="Nothing is needed; values are told apart by their own names.",
    help="values are told apart by their own names, so nothing is needed",
)
UNNAMED = Code(
    "IRC1527",
    "error",
    "A required name is empty",
    "{what} has no name",
    why="Inputs, outputs and initializers are referred to by name.",
    example='initializer { name: "" }',
    fix="Name it.",
    help="name it",
)

# ------------------------------------------------------------------ 154x: nodes, attributes, functions
ATTRIBUTE_DUPLICATE = Code(
    "IRC1541",
    "error",
    "An attribute is given twice",
    'attribute "{name}" is given more than once',
    why="Attribute names are unique within a node.",
    example='attribute { name: "axis" i: 0 } attribute { name: "axis" i: 1 }',
    fix="Remove one of them.",
    help="remove one of them",
)
ATTRIBUTE_VALUE = Code(
    "IRC1542",
    "error",
    "An attribute has no clear value",
    'attribute "{name}" of type {type}: {reason}',
    why="An attribute has a type, and exactly the field of that type holds its value.",
    example='attribute { name: "axis" type: INT f: 0.5 }',
    fix="Write the attribute with onnx.helper.make_attribute.",
    help="write the attribute with onnx.helper.make_attribute",
)
OP_TYPE_MISSING = Code(
    "IRC1543",
    "error",
    "A node has no operation",
    "a node has an empty op_type",
    why="op_type names the operation.",
    example='node { input: "x" output: "y" }',
    fix="Set op_type.",
    help="set op_type",
)
FUNCTION_DUPLICATE = Code(
    "IRC1544",
    "error",
    "A function is defined twice",
    "function {name} is defined more than once",
    why="Domain, name and overload tell model-local functions apart.",
    example='two functions "com.acme::Gelu"',
    fix="Remove one, or give it an overload.",
    help="remove one, or give it an overload",
)
FUNCTION_TOO_BIG = Code(
    "IRC1546",
    "error",
    "Functions expand to too much",
    "{what} is more than irc's limit, {limit}",
    why="A function is expanded where it is called. Functions that call each other several times grow exponentially: "
    "thirty of them, each calling the one before it twice, are a thousand million nodes.",
    example="F1 calls F0 twice, F2 calls F1 twice, and so on",
    fix="Call the functions less often, or use Loop.",
    help="call the functions less often, or use Loop",
)
FUNCTION_RECURSION = Code(
    "IRC1545",
    "error",
    "Functions call each other in a circle",
    "function {name} calls itself: {path}",
    why="A function is expanded where it is called, so recursion would never end.",
    example="a function F whose body calls F",
    fix="Use Loop.",
    help="write the recursion as a Loop",
)
