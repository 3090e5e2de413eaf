"""IRC1001..1399: OpenVINO IR files, but for the constants and the .bin."""

from __future__ import annotations

from irc.diagnostics.code import Code

# ------------------------------------------------------------------ the .xml as a file
FILE_UNREADABLE = Code(
    "IRC1001",
    "error",
    "File cannot be read",
    "cannot read {file}: {reason}",
    "The operating system refused to open or read the file.",
    "a path that does not exist, a folder, or a file without read permission",
    "Check the path and its permissions.",
    "check the path and its permissions",
)
XML_EMPTY = Code(
    "IRC1002",
    "error",
    "File is empty",
    "the file is empty",
    "An OpenVINO IR is an XML document with one <net> element; an empty file is usually an interrupted"
    " download or save.",
    "a model.xml of 0 bytes",
    "Download or save the model again.",
    "download or save the model again",
)
XML_SYNTAX = Code(
    "IRC1003",
    "error",
    "Not well-formed XML",
    "the XML is not well-formed: {reason}",
    "A tag is not closed, a character is not allowed, or the file was cut off, so nothing after that place"
    " can be trusted.",
    '<layer id="0" ...> without </layer>, or a bare & or < in an attribute',
    "Repair the place named, or export the model again.",
    "repair this place, or export the model again",
)
XML_NOT_NET = Code(
    "IRC1004",
    "error",
    "Root element is not <net>",
    "the root element is <{tag}>, an OpenVINO IR has <net>",
    "The file is XML, but not an OpenVINO model.",
    "a configuration or annotation file with the extension .xml",
    "Give the model's own .xml file.",
    "give the .xml that was saved together with the .bin",
)
XML_TOO_DEEP = Code(
    "IRC1005",
    "error",
    "Elements nested too deeply",
    "elements are nested more than {limit} deep",
    "Nested bodies need three levels each; nothing a converter writes comes near the limit, so the file is"
    " damaged or hostile.",
    "thousands of nested <body> elements",
    "Check where the file comes from.",
    "check where the file comes from",
)
XML_DOCTYPE = Code(
    "IRC1006",
    "warning",
    "Document type declaration ignored",
    "the file has a <!DOCTYPE ...>; it is ignored, and its entities are not expanded",
    "OpenVINO ignores document types. Entities can make a small file huge or pull in other files, so irc"
    " never expands them.",
    '<!DOCTYPE net [<!ENTITY e SYSTEM "file:///etc/hostname">]>',
    "Remove the declaration and write the text in place of the entities.",
    "remove the declaration",
)
XML_ENTITY = Code(
    "IRC1007",
    "warning",
    "& that is not an XML entity",
    "an & begins none of &amp; &lt; &gt; &quot; &apos; and no character number; it stays text, as in OpenVINO",
    "Strict XML forbids this, OpenVINO's parser keeps the text as it stands; other tools may refuse the file.",
    'name="a&b" or name="&e;"',
    "Write &amp; for a plain &.",
    "write &amp; for a plain &",
)

XML_ENCODING = Code(
    "IRC1008",
    "warning",
    "Encoding is not known",
    'the file says that its encoding is "{encoding}"; it is read as UTF-8, as in OpenVINO',
    "OpenVINO's parser knows UTF-8, UTF-16, UTF-32 and Latin-1 and takes every other encoding as UTF-8; other tools may"
    " refuse the file or read other names.",
    '<?xml version="1.0" encoding="shift_jis"?>',
    "Write the file in UTF-8, and leave the encoding out or say UTF-8.",
    "write the file in UTF-8",
)

# ------------------------------------------------------------------ <net>
VERSION_MISSING = Code(
    "IRC1010",
    "error",
    "IR version missing",
    "<net> has no version attribute",
    "The version says how the layers are to be read; OpenVINO does not recognise a file without it.",
    '<net name="model">',
    'Add version="11" (or "10"), whichever the file was written as.',
    'add version="11"',
)
VERSION_INVALID = Code(
    "IRC1011",
    "error",
    "IR version is not a number",
    'version "{text}" of <net> is not a number',
    "The version must be 10 or 11.",
    '<net version="eleven">',
    'Write version="11".',
    'write version="11"',
)
VERSION_OLD = Code(
    "IRC1012",
    "error",
    "IR version too old",
    "IR version {version} is not supported; only 10 and 11 are",
    "Versions before 10 have other layer types, no opsets, and weights outside Const layers. OpenVINO"
    " itself dropped them in 2022.",
    '<net version="7"> with layers such as Eltwise, Crop or ScaleShift',
    "Convert the original model again with a current OpenVINO, or load the original in its own framework.",
    "convert the original model again with a current OpenVINO",
)
VERSION_NEW = Code(
    "IRC1013",
    "error",
    "IR version unknown",
    "IR version {version} is not known; only 10 and 11 are supported",
    "A newer version may mean something else by the same elements, so guessing is unsafe.",
    '<net version="12">',
    "Save the model as IR version 11, or update irc.",
    "save the model as IR version 11",
)
V10_RT_INFO = Code(
    "IRC1014",
    "warning",
    "Runtime attributes are not read in IR v10",
    'runtime attribute "{name}" is ignored: IR version 10 has none on layers and ports',
    "OpenVINO reads layer and port attributes such as the layout only from version 11 on.",
    "a layout inside a Parameter's port of a version 10 file",
    'Set version="11" if the attributes are meant to count; tensor names must then be given explicitly.',
    'set version="11" if it is meant to count',
)
LAYERS_MISSING = Code(
    "IRC1015",
    "warning",
    "No layers",
    "<{holder}> has no <layers> section, so it is empty",
    "OpenVINO accepts such a file as an empty model, which is hardly what was meant.",
    '<net name="m" version="11"></net>',
    "Export the model again.",
    "export the model again",
)
NO_RESULT = Code(
    "IRC1016",
    "warning",
    "No Result",
    "<{holder}> has no Result and no Assign layer, so it computes nothing",
    "Only layers that reach a Result or an Assign are part of the model.",
    "a model whose Result layer was deleted",
    "Add a Result layer and an edge to it.",
    "add a Result layer and an edge to it",
)

# ------------------------------------------------------------------ <layer>
LAYER_ATTRIBUTE_MISSING = Code(
    "IRC1020",
    "error",
    "Layer attribute missing",
    "the layer has no {attribute} attribute",
    "id, name, type and version are mandatory for every layer.",
    '<layer id="2" name="mul" version="opset1"> (no type)',
    "Add the attribute.",
    'add {attribute}="..."',
)
LAYER_ID_INVALID = Code(
    "IRC1021",
    "error",
    "Layer id is not a number",
    'layer id "{text}" is not an unsigned 64-bit number',
    "Edges refer to layers by number.",
    '<layer id="abc" ...> or id="-1"',
    "Give the layer a number of its own, and use it in the edges.",
    "give the layer a number of its own",
)
LAYER_ID_DUPLICATE = Code(
    "IRC1022",
    "error",
    "Layer id used twice",
    "layer id {id} is already used by {other}",
    "Edges to and from that id are ambiguous; OpenVINO silently drops the first layer.",
    'two <layer id="1" ...>',
    "Renumber one of the layers, and its edges.",
    "renumber one of the two layers and its edges",
)
LAYER_VERSION_INVALID = Code(
    "IRC1023",
    "error",
    "Unknown opset",
    'version "{text}" of a {type} layer is not an opset; opset1 to opset{newest} exist',
    "The version names the operation set the layer's definition is taken from.",
    '<layer type="Parameter" version="opset99" ...>',
    'Write version="opset1".',
    'write version="opset1"',
)
LAYER_TYPE_SPELLING = Code(
    "IRC1024",
    "warning",
    "Unusual spelling of a layer type",
    'layer type "{text}" is read as "{type}", which is how the format spells it',
    "OpenVINO does not load the data of a layer whose type is spelled this way, and may fail later.",
    '<layer type="Constant" ...>',
    'Write type="{type}".',
    'write type="{type}"',
)
RT_INFO_DUPLICATE = Code(
    "IRC1025",
    "error",
    "Runtime attribute given twice",
    '<rt_info> has the attribute "{name}" more than once',
    "A runtime attribute has one value; OpenVINO refuses the file.",
    'two <attribute name="layout" version="0" .../> in one <rt_info>',
    "Remove one of them.",
    "remove one of them",
)

# ------------------------------------------------------------------ <port> and <dim>
PORT_ID_INVALID = Code(
    "IRC1030",
    "error",
    "Port without a proper id",
    "{side} port {position} has {problem}",
    "Edges refer to ports by number.",
    '<port precision="FP32"> or <port id="x">',
    "Number the ports of the layer: inputs from 0, outputs after them.",
    "give the port a number",
)
PORT_ID_DUPLICATE = Code(
    "IRC1031",
    "error",
    "Port id used twice",
    "two {side} ports of the layer have the id {id}",
    "The second one cannot be reached by any edge.",
    '<input><port id="0"/><port id="0"/></input>',
    "Number the ports of the layer: inputs from 0, outputs after them.",
    "renumber the ports of the layer",
)
PRECISION_MISSING = Code(
    "IRC1032",
    "error",
    "Output port without precision",
    "output port {id} has no precision attribute",
    "The element type of every output port is mandatory.",
    '<output><port id="2"> (no precision)',
    'Add precision="FP32", or whichever type the output has.',
    'add precision="..."',
)
PRECISION_UNKNOWN = Code(
    "IRC1033",
    "error",
    "Unknown precision",
    'precision "{text}" of output port {id} is not an element type',
    "Known are FP64 FP32 FP16 BF16 I64 I32 I16 I8 I4 U64 U32 U16 U8 U6 U4 U3 U2 BIN BOOL NF4 F4E2M1 F8E4M3"
    " F8E5M2 F8E8M0 STRING"
    " UNSPECIFIED, and the lower-case names of attributes.",
    '<port id="2" precision="FP33">',
    "Write one of the known names.",
    "write a known name such as FP32 or I64",
)
INPUT_PRECISION_UNKNOWN = Code(
    "IRC1034",
    "warning",
    "Unknown precision on an input port",
    'precision "{text}" of input port {id} is not an element type; it is ignored',
    "The type of an input is that of its producer, so OpenVINO does not look at it.",
    '<input><port id="0" precision="FP33">',
    "Write the producer's precision.",
    "write the producer's precision",
)
DIM_INVALID = Code(
    "IRC1035",
    "error",
    "Bad <dim>",
    "<dim>{text}</dim> of {side} port {id} is not a number from -1 up",
    "A dimension is a size, or -1 where it is not known.",
    "<dim>two</dim>, <dim>-2</dim> or <dim></dim>",
    "Write the size, or -1.",
    "write the size, or -1",
)
DIM_FRACTION = Code(
    "IRC1036",
    "warning",
    "Junk after a <dim>",
    "<dim>{text}</dim> of {side} port {id} is read as {value}",
    "OpenVINO reads the leading digits and drops the rest.",
    "<dim>2.5</dim>",
    "Write the size as an integer.",
    "write {value}",
)

# ------------------------------------------------------------------ <edges>
EDGE_ATTRIBUTE_INVALID = Code(
    "IRC1040",
    "error",
    "Edge attribute missing or not a number",
    "the edge has {problem}",
    "An edge needs from-layer, from-port, to-layer and to-port, all of them numbers.",
    '<edge from-layer="0" to-layer="2" to-port="0" />',
    "Complete the edge.",
    "complete the edge",
)
EDGE_FROM_UNKNOWN_LAYER = Code(
    "IRC1041",
    "error",
    "Edge from a layer that does not exist",
    "the edge comes from layer {id}, which does not exist",
    "The consumer would have no data.",
    '<edge from-layer="99" ...> in a model of 4 layers',
    "Correct from-layer, or remove the edge.",
    "correct from-layer, or remove the edge",
)
EDGE_TO_UNKNOWN_LAYER = Code(
    "IRC1042",
    "warning",
    "Edge to a layer that does not exist",
    "the edge goes to layer {id}, which does not exist; it is ignored",
    "OpenVINO ignores such an edge, but a layer or a number may be missing.",
    '<edge ... to-layer="99" to-port="0" />',
    "Correct to-layer, or remove the edge.",
    "correct to-layer, or remove the edge",
)
EDGE_FROM_UNKNOWN_PORT = Code(
    "IRC1043",
    "error",
    "Edge from a port that does not exist",
    "the edge comes from port {port} of {layer}, which has {known}",
    "An edge must start at an output port that the layer declares.",
    '<edge from-layer="1" from-port="5" ...> where layer 1 has output port 0 only',
    "Correct from-port, or declare the port in <output>.",
    "correct from-port, or declare the port in <output>",
)
EDGE_TO_UNKNOWN_PORT = Code(
    "IRC1044",
    "error",
    "Edge to a port that does not exist",
    "the edge goes to port {port} of {layer}, which has {known}",
    "An edge must end at an input port that the layer declares.",
    '<edge ... to-layer="2" to-port="5" /> where layer 2 has input ports 0 and 1',
    "Correct to-port, or declare the port in <input>.",
    "correct to-port, or declare the port in <input>",
)
EDGE_DUPLICATE = Code(
    "IRC1045",
    "error",
    "Two edges into one port",
    "input port {port} of {layer} already has an edge, from layer {source}",
    "An input takes its data from one place; OpenVINO refuses a repeated edge too.",
    'two <edge ... to-layer="2" to-port="1" />',
    "Remove one of the edges.",
    "remove one of the edges",
)
INPUT_UNCONNECTED = Code(
    "IRC1046",
    "error",
    "Input without an edge",
    "input port {port} has no edge",
    "Every declared input port needs data; optional inputs are left out at the end instead.",
    "a Multiply with two input ports and one edge",
    "Add an edge to the port, or remove the port if the operation does not need it.",
    'add <edge ... to-layer="{layer_id}" to-port="{port}" />, or remove the port',
)
RESULT_UNCONNECTED = Code(
    "IRC1047",
    "error",
    "Result without an edge",
    "the Result takes exactly one input, and {problem}",
    "A Result hands out what another layer computes.",
    "a Result layer that no <edge> goes to",
    "Add an edge to the Result, or remove it.",
    "add an edge to it, or remove it",
)
CYCLE = Code(
    "IRC1048",
    "error",
    "Layers depend on each other in a cycle",
    "these layers depend on each other: {path}",
    "No order exists in which these layers could run. Loops are written with TensorIterator or Loop, state"
    " with ReadValue and Assign.",
    "an edge from a Multiply to its own input",
    "Remove or redirect one of the edges of the cycle.",
    "remove or redirect one of these edges",
)
TENSOR_NAME_DUPLICATE = Code(
    "IRC1049",
    "warning",
    "Tensor name used twice",
    'tensor name "{name}" already belongs to {other}',
    "A name finds one tensor; OpenVINO renames the second one silently.",
    'names="x" on two output ports',
    "Rename one of them.",
    "rename one of them",
)

# ------------------------------------------------------------------ Parameter
DATA_MISSING = Code(
    "IRC1060",
    "error",
    "Layer without <data>",
    "a {type} layer needs <data>",
    "Type and shape are in <data>; nothing else in the file has them reliably.",
    '<layer type="Parameter" ...> with only <output>',
    'Add <data shape="..." element_type="..." />.',
    "add {wanted}",
)
PARAMETER_TYPE_MISSING = Code(
    "IRC1061",
    "warning",
    "Parameter without element_type",
    "the Parameter has no element_type, so its type is unknown",
    "OpenVINO reads it as a dynamic type, which most operations cannot take.",
    '<data shape="2,3" />',
    'Add element_type="f32", or whichever type it has.',
    'add element_type="{suggested}"',
)
PARAMETER_SHAPE_MISSING = Code(
    "IRC1062",
    "warning",
    "Parameter without shape",
    "the Parameter has no shape, so it is a scalar",
    "OpenVINO reads a missing shape as that of a scalar, not as an unknown one.",
    '<data element_type="f32" />',
    'Add shape="2,3", shape="" for a scalar, or shape="..." for any rank.',
    "add {suggested}",
)
SHAPE_INVALID = Code(
    "IRC1063",
    "error",
    "Bad shape",
    'shape "{shape}": {problem}',
    "A Parameter's shape is a comma separated list of sizes, ? (or -1) for unknown ones, lo..hi for ranges,"
    " or ... for any rank;"
    " a Const's is a list of sizes.",
    'shape="2,x"',
    "Correct the entry.",
    "write sizes, ? or ranges such as 1..5, separated by commas",
)
RANGE_REVERSED = Code(
    "IRC1064",
    "warning",
    "Reversed range in a shape",
    'shape "{shape}": the range {text} is empty; it is read as ?',
    "OpenVINO drops the bounds of such a range and takes any size.",
    'shape="5..2,3"',
    "Write the smaller bound first.",
    "write the smaller bound first",
)
ELEMENT_TYPE_UNKNOWN = Code(
    "IRC1065",
    "error",
    "Unknown element_type",
    'element_type "{text}" does not exist',
    "Attributes use f64 f32 f16 bf16 i64 i32 i16 i8 i4 u64 u32 u16 u8 u6 u4 u3 u2 u1 boolean nf4 f4e2m1"
    " f8e4m3 f8e5m2 f8e8m0 string"
    " dynamic, in any case; port precisions such as FP32 are not among them.",
    'element_type="q8" or element_type="FP32"',
    "Write one of the known names.",
    "write a known name such as f32 or i64",
)
PORT_DISAGREES = Code(
    "IRC1066",
    "warning",
    "Port disagrees with <data>",
    "the output port says {port}, <data> says {data}; <data> counts",
    "OpenVINO takes type and shape from <data> and does not look at the port; one of the two is out of date.",
    '<data shape="2,3" .../> with the port dims 5, 3',
    "Make the port repeat <data>, or correct <data>.",
    "make the two agree",
)
OUTPUT_PORT_COUNT = Code(
    "IRC1067",
    "error",
    "Wrong number of output ports",
    "a {type} layer has one output port, this one has {count}",
    "Parameter and Const each produce one tensor.",
    "a Const without <output>",
    "Declare exactly one port in <output>.",
    "declare exactly one port in <output>",
)

# ------------------------------------------------------------------ TensorIterator, Loop, If
BODY_MISSING = Code(
    "IRC1090",
    "error",
    "Body missing",
    "{type} has no <{body}>",
    "The body holds the layers that the {type} runs.",
    '<layer type="TensorIterator" ...> with only ports',
    "Export the model again.",
    "add <{body}> with <layers> and <edges>",
)
PORT_MAP_INVALID = Code(
    "IRC1091",
    "error",
    "Bad port map entry",
    "<{section}> {kind} entry: {problem}",
    "A port map joins a port of the layer (external_port_id) to a Parameter or Result layer of the body"
    " (internal_layer_id).",
    '<input external_port_id="0" internal_layer_id="9" /> where the body has no Parameter 9',
    "Correct the entry.",
    "correct the entry",
)
BACK_EDGE_INVALID = Code(
    "IRC1092",
    "error",
    "Bad back edge",
    "<back_edges> entry: {problem}",
    "A back edge goes from a Result of the body to a Parameter of the body.",
    '<edge from-layer="7" to-layer="99" />',
    "Correct the entry.",
    "correct the entry",
)
PORT_MAP_MISSING = Code(
    "IRC1093",
    "error",
    "Port map missing",
    "no entry of the port map names {what}",
    "Every Parameter of a body needs an input entry, and every output port of the layer an output entry.",
    "a body Parameter that no <input internal_layer_id=...> names",
    "Add the entry.",
    "add the entry to the port map",
)

# ------------------------------------------------------------------ schema
SCHEMA_ELEMENT = Code(
    "IRC1100",
    "warning",
    "Unexpected element",
    "<{tag}> is not expected inside <{parent}>; it is ignored",
    "The element is no part of the format, so whatever it says has no effect.",
    '<weights offset="0" size="12"/> inside a <layer> (a leftover of IR version 7)',
    "Remove it, or move what it says to where the format has it.",
    "remove it",
)
SCHEMA_ATTRIBUTE = Code(
    "IRC1101",
    "warning",
    "Unexpected attribute",
    '<{tag}> has an attribute {attribute}="{value}" that the format does not know; it is ignored',
    "The attribute has no effect; it may be misspelled.",
    '<port id="0" presicion="FP32">',
    "Correct its name, or remove it.",
    "correct its name, or remove it",
)
SCHEMA_ATTRIBUTE_MISSING = Code(
    "IRC1102",
    "warning",
    "Attribute missing",
    "<{tag}> has no {attribute} attribute",
    "The format asks for it, though readers may do without.",
    '<input external_port_id="0" /> in a <port_map> of a layer without body',
    "Add the attribute.",
    'add {attribute}="..."',
)
SCHEMA_VALUE = Code(
    "IRC1103",
    "warning",
    "Value of an unexpected form",
    '{what} of <{tag}> is "{value}", the format expects {expected}',
    "Readers differ in what they make of such a value.",
    "<dim>+2</dim>",
    "Write it as the format expects.",
    "write {expected}",
)
SCHEMA_OTHER = Code(
    "IRC1104",
    "warning",
    "Not according to the schema",
    "<{tag}> does not have the form that the schema ir-v{version}.rng describes: {reason}",
    "The RELAX NG schema describes what OpenVINO writes; this file is different in a way irc has no closer words for.",
    "a section that occurs twice",
    "Compare with the schema.",
    "{advice}",
)
