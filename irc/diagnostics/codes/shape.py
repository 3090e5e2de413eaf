"""IRC3xxx: shapes."""

from irc.diagnostics.code import Code

NOT_BROADCASTABLE = Code(
    "IRC3101",
    "error",
    "Shapes do not broadcast",
    "{op}: shapes {shapes} do not broadcast (axis {axis})",
    why="By NumPy's rule two sizes fit when they are equal or one of them is 1, counted from the last axis.",
    example="[2,4] and [3]",
    fix="Reshape or transpose one operand so that the sizes agree.",
    help="reshape or transpose an operand so that every axis is equal or 1",
)
SHAPES_DIFFER = Code(
    "IRC3102",
    "error",
    "Shapes must be equal",
    "{op}: no broadcasting was asked for, but the operands are {first} and {second}",
    why='With broadcast=0 (ONNX opset 1..6) or auto_broadcast="none" (OpenVINO) both operands have one shape.',
    example='auto_broadcast="none" with [2,3] and [3]',
    fix="Ask for broadcasting, or give the operands the same shape.",
    help='use auto_broadcast="numpy" (ONNX: broadcast=1, or opset 7 and later)',
)
AXIS_DOES_NOT_FIT = Code(
    "IRC3103",
    "error",
    "Second operand does not fit at the axis",
    "{op}: {second} does not fit into {first} from axis {axis} on",
    why="The second operand's axes must lie inside the first's, starting at the given axis.",
    example="[4,5] into [2,3,4,5] at axis 3",
    fix="Correct the axis.",
    help="choose an axis so that the second operand's axes lie inside the first's",
)
MATMUL_INNER = Code(
    "IRC3104",
    "error",
    "MatMul inner dimensions differ",
    "{op}: inner dimensions differ: {a} and {b}",
    why="The last axis of the first operand is summed against the second-last axis of the second.",
    example="[128,64] by [128,64] without transpose_b",
    fix="Transpose one of the operands.",
    help='set transpose_b="true" (Gemm: transB=1), or transpose an operand',
)
WRONG_RANK = Code(
    "IRC3105",
    "error",
    "Wrong rank",
    "{op}: operand {operand} is {type} and must have rank {expected}",
    why="The operation is defined for operands with that number of axes only.",
    example="Gemm of a rank-3 operand",
    fix="Reshape the operand.",
    help="reshape the operand to rank {expected}",
)
AXIS_RANGE = Code(
    "IRC3106",
    "error",
    "Axis out of range",
    "{op}: axis {axis} is out of range for rank {rank}",
    why="An axis counts from 0 to rank-1, or from -rank to -1.",
    example="SoftMax axis=7 of a rank-4 tensor",
    fix="Use an axis the operand has.",
    help="use an axis in {lo}..{hi}",
)
RESHAPE_COUNT = Code(
    "IRC3107",
    "error",
    "Reshape changes the number of elements",
    "{op}: {source} has {have} elements, the new shape {target} has {want}",
    why="A reshape keeps every element.",
    example="[2,3] to [4,2]",
    fix="Correct the target shape.",
    help="the sizes of the new shape must multiply to {have}",
)
SIZES_DIFFER = Code(
    "IRC3108",
    "error",
    "Sizes must be equal",
    "{op}: {what} must be equal, but are {a} and {b}",
    why="These two sizes describe the same thing and must agree.",
    example="Concat of [2,3] and [2,4] along axis 0",
    fix="Correct the shape of an operand, or the attribute.",
    help="make the two sizes equal",
)
SIZE_RANGE = Code(
    "IRC3109",
    "error",
    "Size out of range",
    "{op}: {what} is {value}; it must be {expected}",
    why="The operation is not defined for that size.",
    example="DepthToSpace with block_size 2 and 3 channels",
    fix="Correct the shape of the operand, or the attribute.",
    help="change the operand's shape, or the attribute",
)
RANK_UNKNOWN = Code(
    "IRC3110",
    "warning",
    "Rank must be known",
    "{op}: what it does depends on the rank of an operand, and that is unknown",
    why="This version of the operation cannot be read without the number of axes of its operands. The model can be "
    "rewritten in its own format (the node is copied as it is), not converted, checked beyond this node, or compiled.",
    example="Gemm-6 without broadcast=1 whose C comes from an input without shape",
    fix="Declare the shapes of the model's inputs; a size may stay symbolic.",
    help="declare the shapes of the model's inputs",
)
BEYOND_LIMIT = Code(
    "IRC3301",
    "error",
    "More than irc handles",
    "{op}: {what} would be {value}; irc's limit is {limit}",
    why="A few bytes of a file can ask for more than any machine holds: a tensor of thousands of axes, a size whose "
    "formula has millions of terms. Limits far beyond what models need are checked before the work is done; "
    "docs/adr/0015-limits.md lists them.",
    example="a Reshape whose shape operand has 2^32 elements",
    fix="Correct the model; where it is meant to be so, build it of smaller parts.",
    help="correct the operand or attribute that asks for so much",
)
TENSOR_TOO_LARGE = Code(
    "IRC3302",
    "error",
    "Tensor too large",
    "{op}: {type} would have more than 2^62 bytes (a size of 0 counts as 1)",
    why="Offsets are 64-bit numbers. A size of 0 makes no other one small: strides and partial products count too.",
    example="a Tile that repeats an axis 2^62 times",
    fix="Correct the sizes or repeats.",
    help="use smaller sizes",
)
RANKS_DIFFER = Code(
    "IRC3111",
    "error",
    "Ranks must be equal",
    "{op}: operand {operand} is {type}, but {other} is {first}: their ranks must be equal",
    why="The operation pairs the axes of these operands one by one.",
    example="GatherElements of data [2,3] and indices [2]",
    fix="Reshape one of the operands.",
    help="give both operands the same number of axes",
)
DECLARED_SHAPE = Code(
    "IRC3201",
    "warning",
    "Declared shape disagrees with inference",
    "{value} is declared {declared}; inference says {inferred}",
    why="Shapes written in the file are not used by OpenVINO's reader, which infers them again; other tools may "
    "trust them.",
    example="<dim>4</dim> on the output port of a layer whose result has 2 rows",
    fix="Correct or remove the declaration (writing the file with irc does).",
    help="`irc convert` writes inferred shapes",
)
DECLARED_TYPE = Code(
    "IRC3202",
    "warning",
    "Declared element type disagrees with inference",
    "{value} is declared {declared}; inference says {inferred}",
    why="Precisions of ports are not compared with the inferred type by OpenVINO's reader; other tools may trust them.",
    example='precision="I32" on the result of a product of f32',
    fix="Correct the declaration (writing the file with irc does).",
    help="`irc convert` writes inferred types",
)
STALE_TYPE = Code(
    "IRC3303",
    "error",
    "Result does not have the type it is said to have",
    "%{value} of {op} is {declared} in the graph, but its operands make it {inferred}",
    why="A graph that was built or changed in Python is inferred again before it is written. A type that is set by "
    "hand, or that was inferred before an operand changed, would be written into the file.",
    example="Gemm of [2,3] and [3,4] whose result is declared f32[2,5]",
    fix="Set the type that is inferred, or infer the graph anew with `irc.passes.infer.run`.",
    help="set the type of %{value} to {inferred}",
)
