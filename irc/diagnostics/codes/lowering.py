"""IRC5xxx: lowering of a graph to loops."""

from irc.diagnostics.code import Code

OPAQUE = Code(
    "IRC5001",
    "error",
    "Operation is not known",
    "{op} cannot be compiled: irc does not know what it computes",
    why="The layer or node was kept as it is in the file, which is enough to write the same format again, but its "
    "meaning is needed to compile it.",
    example="a custom-domain ONNX node",
    fix="Replace the operation by known ones in the source model.",
    help="replace {op} in the source model",
)
NO_LOWERING = Code(
    "IRC5002",
    "error",
    "Operation cannot be compiled to C",
    "{op} has no form that can be compiled to C",
    why="irc can evaluate this operation, but has no loops for it.",
    example="NonZero, whose result has as many elements as its operand has values other than 0",
    fix="Use the numpy backend, or replace the operation in the source model.",
    help='compile with backend="numpy" (--backend numpy)',
)
UNSUPPORTED_TYPE = Code(
    "IRC5003",
    "error",
    "Value cannot be compiled to C",
    "{value} is {type}; C code handles tensors whose rank is known, and sequences and maps of them",
    why="Complex numbers, and sequences or maps of anything but tensors, have no representation in C, and "
    "loops need to know how many axes there are.",
    example="a sequence of sequences as an input",
    fix="Use the numpy backend; where the rank is unknown, fix the input shapes.",
    help='compile with backend="numpy", or give the input shapes (--shape)',
)
DATA_DEPENDENT = Code(
    "IRC5004",
    "error",
    "Size depends on data",
    "the size {symbol} of {value} is known only once {op} has run",
    why="Generated C reads a size that depends on data behind the operation that computes it.  Most operations say how "
    "it is computed; for this one irc does not know yet.",
    example="AdaptiveAvgPool whose output size is an input of the model",
    fix="Make the size an input's size or a constant in the source model, or use the numpy backend.",
    help='compile with backend="numpy", or make the size constant',
)
SYMBOL_NOT_AN_INPUT = Code(
    "IRC5005",
    "error",
    "Size is not the size of an input",
    "the size {symbol} of {value} is not itself the size of an axis of an input",
    why="The sizes that are parameters of the generated code are read from the inputs' shapes.",
    example="an input declared as [2*n] where nothing is declared as [n]",
    fix="Fix the size when compiling.",
    help="give that size with --shape",
)
RANK_NEEDED = Code(
    "IRC5010",
    "error",
    "Rank is needed",
    "a value is {type}; compiling needs to know how many axes it has",
    why="What is generated for this operation depends on the number of axes of its operands.",
    example="Attention of an input without a shape",
    fix="Declare the shapes of the model's inputs, or give them when compiling; a size may stay symbolic.",
    help="give the input shapes (--shape)",
)
TYPE_NEEDED = Code(
    "IRC5011",
    "error",
    "Element type is needed",
    "{value} is {type}; compiling needs its element type",
    why="What is generated computes with numbers of one type; which one nothing in the model says.",
    example='a Parameter with element_type="dynamic"',
    fix="Declare the element type of the model's inputs.",
    help="declare the element type",
)
WRONG_ELEMENT_TYPE = Code(
    "IRC5006",
    "error",
    "Loops have the wrong element type",
    "{op} declares {declared} but computes {found}",
    why="irc's own description of an operation is inconsistent.",
    example="a compute whose result is not cast to the declared type",
    fix="This is a bug in irc.",
    help="please report it with the model, or a reduced one",
)
SIZE_LIMIT = Code(
    "IRC5007",
    "error",
    "Size beyond 64-bit arithmetic",
    "{what} is beyond the limit of generated code, {limit}",
    why="Generated code computes sizes, offsets and indices as 64-bit numbers.",
    example="a Tile that repeats an axis 2^60 times",
    fix="Use smaller sizes in the source model.",
    help="use smaller sizes in the source model",
)
TOO_LITTLE_RAM = Code(
    "IRC5012",
    "error",
    "The context does not fit the memory given",
    "the model needs a context of {need} bytes, {excess} more than the {limit} given",
    why="What a run keeps, its tensors and what kernels need, is counted when compiling. This is the least of what can "
    "be had without threads, without copies of operands, and without kernels.",
    example="irc compile model.onnx --emit c --target cortex-m4 --max-ram 1024",
    fix="Use a smaller input or a narrower element type: irc info --target says which tensors are alive together.",
    help="irc info --target CPU says which tensors are alive together",
)
RAM_UNKNOWN = Code(
    "IRC5013",
    "error",
    "Inputs decide how much memory is needed",
    "whether {limit} bytes are enough depends on sizes of inputs: the arena has {arena} bytes",
    why="A limit can be kept only where the sizes are known.",
    example="irc compile samples/digits/digits.onnx --emit c --max-ram 65536",
    fix="Fix the sizes: --shape 'image[1,1,8,8]'.",
    help="fix the sizes with --shape (shapes=)",
)
NEEDS_MEMORY = Code(
    "IRC5008",
    "error",
    "A run needs more memory than allowed",
    "{what} takes {need} bytes; the limit is {limit}",
    why="Sizes that are known when compiling say how much memory a run takes. A few bytes of a file can ask for more "
    "than any machine has.",
    example="an Expand to [1048576, 1048576]",
    fix="Use smaller sizes in the source model, or raise the limit.",
    help="raise the limit with --max-memory (max_memory=), or use smaller sizes",
)
