"""IRC4xxx: conversion."""

from irc.diagnostics.code import Code

CANNOT_CONVERT = Code(
    "IRC4001",
    "error",
    "Operation cannot be converted",
    "{op} was read from {source} without being understood, so it cannot be written as {target}",
    why="irc copies operations it does not know when it writes the format they came from; another format needs "
    "their meaning.",
    example="a custom-domain ONNX node to OpenVINO",
    fix="Replace the operation in the source model, or convert to the format it came from.",
    help="convert to {source}, or replace {op} in the source model",
)
CANNOT_EXPRESS = Code(
    "IRC4002",
    "error",
    "Target format cannot express the operation",
    "{target} has no way to say {op} of {types}: {reason}",
    why="No operation of the target format, in any version, has this meaning for these element types and "
    "attributes, and no combination that irc knows does.",
    example="TopK without sorting order of indices in ONNX",
    fix="Change the attribute or element type in the source model.",
    help="`irc info` lists the operations of a model; docs/ops.md says what each format can express",
)
NEEDS_NEWER_OPSET = Code(
    "IRC4003",
    "error",
    "Operation needs a newer opset",
    "{op} of {types} needs {target} {needed}; {asked} was asked for",
    why="Older operation sets lack the operation, an attribute of it or an element type.",
    example="Mul of bf16 in ONNX opset 12",
    fix="Write the newer opset, or change the model.",
    help="ask for {needed} (--opset, or --max-opset for OpenVINO)",
)
NEEDS_RANK = Code(
    "IRC4004",
    "error",
    "Conversion needs a rank that is unknown",
    "{op} of {types} can be written as {target} only when the ranks of its operands are known",
    why="What the source says in one operation takes several of the target's, and which ones depends on the rank.",
    example="Sub of a tensor of unknown rank in ONNX opset 6, which broadcasts by other rules",
    fix="Give the model's inputs shapes.",
    help="declare the shapes of the inputs (-1, or a name in ONNX, for sizes that vary)",
)
NOT_AS_WRITTEN = Code(
    "IRC4005",
    "error",
    "Operation cannot be rewritten",
    "{op} of {types} cannot be written as {target}: {reason}",
    why="The target format says this operation in others, and these do not accept the operands or attributes here.",
    example="symmetric padding whose widths are computed when the model runs, in ONNX",
    fix="Change the model so that the reason given does not apply.",
    help="`irc explain {cause}` says more about the reason",
)
CANNOT_COPY = Code(
    "IRC4006",
    "error",
    "Operation cannot be copied to another opset",
    "{op} was read from {made_for} without being understood, so it cannot be written in {asked}",
    why="irc copies operations it does not know as they are. In the opset asked for the operation, or one in its "
    "bodies, does not exist or is defined differently.",
    example="Resize of ONNX opset 11 in opset 9",
    fix="Write the opset the model came in, or one in which the definition is the same.",
    help="ask for {made_for}",
)
NO_ELEMENT_TYPE = Code(
    "IRC4007",
    "error",
    "Target format has no such element type",
    '"{name}" has element type {type}, which {target} cannot name',
    why="The formats name different element types: nf4, u1, u3 and u6 exist only in OpenVINO; complex numbers, i2 and "
    "the fnuz forms of f8 only in ONNX.",
    example="an nf4 weight table of an OpenVINO model, written as ONNX",
    fix="Convert the tensor to an element type that both formats have, such as f16 or f32.",
    help="store it in an element type that {target} has, such as f32",
)
STAYS_WIDE = Code(
    "IRC4008",
    "note",
    "Not everything is of the type that was asked for",
    "{what}: {type} as before, because {reason}",
    why="A model is written in f16 or bf16 so that it loads and computes the same but for rounding. Numbers that the "
    "type cannot hold, sizes, and operations that have no version of it stay as they are, between conversions.",
    example="Resize, whose scales ONNX takes in f32 only, in a model that is written in f16",
    fix="Nothing is wrong. A newer opset may have the operation in that type.",
    help="`irc info` shows the element types of the written model",
)
BRANCH_LEFT_OUT = Code(
    "IRC4009",
    "note",
    "Branch that cannot be run is left out",
    "the If is written as the other of its branches, because every run of {branch} would end in an error: {reason}",
    why="OpenVINO needs to know ranks, and so do operations in a branch of the sizes that --shape gives. Where the "
    "rank or the sizes are such that one branch of an If cannot run, a run that succeeds has taken the other.",
    example="an If that squeezes an axis of size 1, before a convolution; an If for each of two rates of sampling, "
    "whose branches take frames of different sizes, in a model that gets a fixed size",
    fix="Nothing is wrong. For inputs that would have taken the branch the converted model ends in an error as before, "
    "or computes what its operations make of them.",
    help="give the inputs the sizes that the model runs with (--shape)",
)
STATE_INITIAL = Code(
    "IRC4101",
    "error",
    "Initial state depends on the inputs",
    'the initial value of variable "{variable}" is computed from the model\'s inputs, but must be known before it runs',
    why="A model with state is written to ONNX with an extra input and output for each variable, and its metadata "
    "lists their initial values; generated C holds them as numbers too.",
    example="ReadValue whose initial value is a projection of an input",
    fix="Initialise the variable with a constant, or with zeros of the right shape.",
    help='give "{variable}" a constant initial value',
)
