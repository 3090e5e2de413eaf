"""IRC2xxx: operations, their attributes and element types."""

from irc.diagnostics.code import Code

UNKNOWN_OP = Code(
    "IRC2001",
    "error",
    "Unknown operation",
    "there is no operation {op} in {opset}{guess}",
    why="The name is in no version of that operation set, so nothing can be said about what it computes.",
    example='<layer id="2" name="mul" type="Multiplyx" version="opset1">',
    fix="Correct the name, or the opset the layer or the model names.",
    help="check the spelling and the opset",
)
UNSUPPORTED_OP = Code(
    "IRC2002",
    "warning",
    "Operation not supported yet",
    "irc does not support {op} ({opset}) yet: {reason}",
    why="The operation exists, but irc has no definition for it. The model can be rewritten in its own format "
    "(the layer is copied as it is), not converted, checked beyond this layer, or compiled.",
    example='<layer type="PSROIPooling" version="opset1">',
    fix="See docs/ops.md for what is supported; please open an issue with the model's layer.",
    help="keep the model in its own format; from here on its declared types are taken on trust",
)
NOT_IN_OPSET = Code(
    "IRC2003",
    "error",
    "Operation is newer than its opset",
    "{op} does not exist in {opset}; it first appeared in {first}",
    why="A layer or model names the operation set its operations are taken from, and this one is not in it.",
    example='<layer type="HSwish" version="opset1">: HSwish came with opset4',
    fix="Raise the opset, or use an operation that the older set has.",
    help="use {first} or later",
)
UNKNOWN_OPSET = Code(
    "IRC2004",
    "error",
    "Unknown opset",
    "{op} is of {opset}, which irc does not know; the newest it knows is {newest}",
    why="The operation set named by the file is not one that irc knows, so the layer's meaning is unknown.",
    example='<layer type="Multiply" version="opset99">',
    fix="Name the opset that the operation was written for.",
    help="use {newest} or earlier",
)
CUSTOM_DOMAIN = Code(
    "IRC2005",
    "warning",
    "Operation of a custom domain",
    "{op} is of the domain {domain}, whose operations irc does not know",
    why="Only the domains of the ONNX standard have a specification to go by. The node is copied as it is when the "
    "model is written as ONNX; the model cannot be converted, checked beyond this node, or compiled.",
    example='op_type "Gelu", domain "com.acme"',
    fix="Export the model with standard operations, or give the model a local function of that name and domain.",
    help="add a local function {domain}.{op}; without one, declared types are taken on trust from here on",
)
NO_GRADIENT = Code(
    "IRC2006",
    "warning",
    "No derivative of an operation",
    "a gradient goes through {through}, which irc cannot differentiate",
    why="Gradient asks for the derivative of a part of the graph. irc differentiates each operation there by a rule, "
    "or as what it is composed of; this one has neither, or its rule does not cover these attributes and operands.",
    example="a Gradient whose y is computed from its xs by a Loop",
    fix="Export the backward pass, or write the operation as others that can be differentiated.",
    help="export the backward pass; from here on declared types are taken on trust",
)
TOO_FEW_INPUTS = Code(
    "IRC2101",
    "error",
    "Too few inputs",
    "{op}: number of inputs is {given}, at least {needed} needed",
    why="A required operand is not connected.",
    example="Add with one input",
    fix="Connect the missing operand.",
    help="the operands are: {operands}",
)
TOO_MANY_INPUTS = Code(
    "IRC2102",
    "error",
    "Too many inputs",
    "{op}: number of inputs is {given}, at most {most} possible",
    why="The operation has no operand at that position.",
    example="Multiply with three inputs",
    fix="Remove the extra operand.",
    help="the operands are: {operands}",
)
MISSING_OPERAND = Code(
    "IRC2103",
    "error",
    "Required operand is absent",
    "{op} needs operand {index} ({operand}), which is left empty",
    why="Only operands that the specification marks optional may be left out.",
    example='NodeProto.input = ["x", "", "c"] where the second is required',
    fix="Connect the operand.",
    help="connect input {index}",
)
TYPE_NOT_ALLOWED = Code(
    "IRC2104",
    "error",
    "Element type not allowed",
    "{op}: operand {operand} is {dtype}; allowed: {allowed}",
    why="The specification of this version of the operation does not list that element type.",
    example="BitwiseNot of f32",
    fix="Convert the operand first, or use a version of the operation that allows the type.",
    help="insert a Cast (OpenVINO: Convert) to an allowed type",
)
TYPE_MISMATCH = Code(
    "IRC2105",
    "error",
    "Element types differ",
    "{op}: operand {operand} is {dtype}, but {other} is {first}",
    why="These operands must have one element type; nothing is converted silently.",
    example="Multiply of f32 and i32",
    fix="Convert one of the operands.",
    help="insert a Cast (OpenVINO: Convert) so that both are {first}",
)
TOO_MANY_OUTPUTS = Code(
    "IRC2106",
    "error",
    "Too many outputs",
    "{op}: number of declared outputs is {given}, the operation has {most}",
    why="The operation produces fewer results than the file declares.",
    example="Multiply with a second output port",
    fix="Remove the extra output.",
    help="remove the extra outputs",
)
REGION_TYPES_DIFFER = Code(
    "IRC2107",
    "error",
    "Bodies disagree about a type",
    "{op}: a result is {first} in one place and {second} in the other",
    why="Both branches of an If have results of the same types, and what a Loop or a Scan carries has the type that it "
    "started with. Sizes may differ, element types may not.",
    example="If whose then_branch gives f32[2] and whose else_branch gives i64[2]",
    fix="Add a Cast to one of the bodies.",
    help="make the element types equal, with a Cast in one of the bodies",
)
REGION_ARITY = Code(
    "IRC2108",
    "error",
    "Wrong number of inputs or outputs of a body",
    "{op}: its {body} has {given} {what}, {needed} fit the node",
    why="How many inputs and outputs the body of an If, Loop, Scan or SequenceMap has follows from the node's own.",
    example="Loop with two carried values and a body of three inputs: the number, the condition, and one of the values",
    fix="Give the body the missing inputs or outputs, or the node the operands.",
    help="give the body {needed} {what}",
)
NOT_A_SEQUENCE = Code(
    "IRC2109",
    "error",
    "Not a sequence of tensors",
    "{op} takes a sequence of tensors, not {type}",
    why="Operations on sequences take a sequence, which SequenceConstruct, SequenceEmpty and SplitToSequence make.",
    example="SequenceAt of a tensor",
    fix="Make a sequence of the operand, or use an operation on tensors, such as Gather.",
    help="make a sequence of the operand first",
)
ENDLESS_LOOP = Code(
    "IRC2110",
    "error",
    "A Loop that never ends",
    "Loop has no number of runs, and its condition holds at the start and after each run",
    why="Nothing ends such a loop. ONNX allows it, but no run of the model would ever have a result.",
    example="Loop without trip count whose body gives its condition back as it is",
    fix="Give the Loop a number of runs, or compute the condition in its body.",
    help="give the Loop a number of runs",
)
MISSING_ATTRIBUTE = Code(
    "IRC2201",
    "error",
    "Required attribute is missing",
    "{op} has no attribute {attribute}, which is required",
    why="The attribute has no default, so the operation is not defined without it.",
    example="MaxPool without kernel",
    fix="Add the attribute.",
    help='add {attribute}="…"',
)
ASSUMED_ATTRIBUTE = Code(
    "IRC2202",
    "warning",
    "Required attribute is missing; a value is assumed",
    "{op} has no attribute {attribute}; OpenVINO's reader silently takes {assumed}",
    why="The specification requires the attribute. OpenVINO accepts its absence and takes a zero or empty default.",
    example="Concat without axis is read as axis 0",
    fix="Write the attribute.",
    help='add {attribute}="{assumed}" if that is meant',
)
BAD_ATTRIBUTE = Code(
    "IRC2203",
    "error",
    "Attribute cannot be read",
    '{op}: {attribute}="{text}" is not {expected}',
    why="The text is not of the attribute's type.",
    example='axis="last" where an integer is expected',
    fix="Write a value of the expected type.",
    help="write {expected}",
)
BAD_ENUM = Code(
    "IRC2204",
    "error",
    "Attribute value is not one of its choices",
    '{op}: {attribute}="{text}" is none of {choices}{guess}',
    why="The attribute takes one of a fixed list of words.",
    example='auto_broadcast="sideways"',
    fix="Use one of the listed words.",
    help="use one of {choices}",
)
ODD_CASE = Code(
    "IRC2209",
    "warning",
    "Attribute value in other letters",
    '{op}: {attribute}="{text}" is read as {value}',
    why="OpenVINO's reader takes the words of an attribute in small or capital letters; its specification has one "
    "spelling, and other tools may know that one only.",
    example='auto_broadcast="NUMPY"',
    fix="Spell the word as the specification does.",
    help='write {attribute}="{value}"',
)
ODD_NUMBER = Code(
    "IRC2210",
    "warning",
    "Number with something behind it",
    '{op}: {attribute}="{text}" is read as {value}',
    why="OpenVINO's reader takes a number as far as it goes and drops the rest without a word.",
    example='eps="1,5" is read as 1',
    fix="Write the number that is meant, with a point.",
    help="remove what stands behind {value}",
)
ODD_BOOLEAN = Code(
    "IRC2205",
    "warning",
    "Boolean attribute is neither true nor false",
    '{op}: {attribute}="{text}" is read as false',
    why='OpenVINO reads "true" and "1" as true and everything else as false, whatever it says.',
    example='exclude-pad="yes" means false',
    fix='Write "true" or "false".',
    help='write {attribute}="true" or "false"',
)
UNKNOWN_ATTRIBUTE = Code(
    "IRC2206",
    "warning",
    "Attribute is not one the operation has",
    "{op} has no attribute {attribute}; it is ignored",
    why="A reader ignores attributes it does not know, so a misspelt one silently has no effect.",
    example='strids="2,2" on a Convolution',
    fix="Correct the name, or remove the attribute.",
    help="{advice}",
)
ATTRIBUTE_RANGE = Code(
    "IRC2207",
    "error",
    "Attribute value out of range",
    "{op}: {attribute} is {value}; it must be {expected}",
    why="The value is of the right type but outside what the operation is defined for.",
    example="strides = 0",
    fix="Use a value in the stated range.",
    help="correct {attribute}",
)
ATTRIBUTE_LENGTH = Code(
    "IRC2208",
    "error",
    "Attribute has the wrong number of values",
    "{op}: number of values of {attribute} is {given}, {needed} needed",
    why="The attribute needs one value for each spatial dimension (or axis) of the operand.",
    example='kernel="3" for a two-dimensional pool',
    fix="Give one value per dimension.",
    help="correct the number of values, or the rank of the operand",
)
NEEDS_CONSTANT = Code(
    "IRC2301",
    "error",
    "Operand must be constant",
    "{op}: {operand} must be known before the model runs",
    why="The result's rank, or the meaning of the operation, depends on the operand's value, which is not known "
    "before the model runs.",
    example="Transpose with a computed permutation",
    fix="Make the operand a constant, or fold the computation that produces it.",
    help="make it a constant",
)
UNKNOWN_VARIABLE = Code(
    "IRC2302",
    "error",
    "Unknown state variable",
    'Assign writes variable "{variable}", which no ReadValue reads',
    why="State is written by Assign and read by ReadValue, linked by variable_id.",
    example='Assign variable_id="b" where only ReadValue variable_id="a" exists',
    fix="Use the same variable_id in both.",
    help="the model has these variables: {known}",
)
BROKEN_GRAPH = Code(
    "IRC2401",
    "error",
    "Graph is inconsistent",
    'the graph "{graph}" holds no model: {what}',
    why="A graph that was built or changed in Python is checked before it is written: every operand has one producer "
    "that stands in the graph, and every output is made by it.",
    example="a graph output whose node was removed",
    fix="Change graphs by the methods of `Graph`, and set `graph.outputs` before a node is removed.",
    help="use `Graph.replace_uses` before `Graph.remove`",
)
CYCLE = Code(
    "IRC2402",
    "error",
    "Operations depend on each other",
    "these operations depend on each other: {nodes}",
    why="A graph is acyclic. A node was given an operand that is computed from its own result.",
    example="graph.set_op(node, node.op, [node.outputs[0]])",
    fix="Give the first of the operations another operand; write recurrence with Loop or with state.",
    help="change an operand of one of them with `Graph.set_op`",
)
