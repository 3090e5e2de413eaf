"""IRC4xxx: conversion."""

from irc.diagnostics.core import Code

CANNOT_CONVERT = Code(
    "IRC4001", "error", "Operation cannot be converted",
    "{op} was read from {source} without being understood, so it cannot be written as {target}",
    why="irc copies operations it does not know when it writes the format they came from; another format needs "
    "their meaning.",
    example="a custom-domain ONNX node to OpenVINO",
    fix="Replace the operation in the source model, or convert to the format it came from.",
    help="convert to {source}, or replace {op} in the source model",
)  # fmt: skip
CANNOT_EXPRESS = Code(
    "IRC4002", "error", "Target format cannot express the operation",
    "{target} has no way to say {op} of {types}",
    why="No operation of the target format, in any version, has this meaning for these element types and "
    "attributes, and no combination that irc knows does.",
    example="TopK without sorting order of indices in ONNX",
    fix="Change the attribute or element type in the source model.",
    help="`irc info` lists the operations of a model; docs/ops.md says what each format can express",
)  # fmt: skip
NEEDS_NEWER_OPSET = Code(
    "IRC4003", "error", "Operation needs a newer opset",
    "{op} of {types} needs {target} {needed}; {asked} was asked for",
    why="Older operation sets lack the operation, an attribute of it or an element type.",
    example="Mul of bf16 in ONNX opset 12",
    fix="Write the newer opset, or change the model.",
    help="ask for {needed} (--opset, or --max-opset for OpenVINO)",
)  # fmt: skip
STATE_INITIAL = Code(
    "IRC4101", "error", "Initial state depends on the inputs",
    'the initial value of variable "{variable}" is computed from the model\'s inputs; ONNX metadata can only hold '
    "numbers",
    why="A model with state is written to ONNX with an extra input and output for each variable, and its metadata "
    "lists their initial values, which must be known when the file is written.",
    example="ReadValue whose initial value is a projection of an input",
    fix="Initialise the variable with a constant, or with zeros of the right shape.",
    help='give "{variable}" a constant initial value',
)  # fmt: skip
