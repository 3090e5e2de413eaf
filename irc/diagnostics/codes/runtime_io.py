"""IRC6300..6699: artefacts, running, the cache, and what the public API is asked for."""

from irc.diagnostics.code import Code

INPUT_COUNT = Code(
    "IRC6301",
    "error",
    "Wrong number of inputs",
    "the model takes {wanted} inputs ({names}); {given} were given",
    why="A compiled model is called with one array an input, in the model's order, or with a dict by name.",
    example="compiled(a) of a model with the inputs a and b",
    fix="Give every input.",
    help="pass one array for each of: {names}",
)
UNKNOWN_INPUT = Code(
    "IRC6302",
    "error",
    "No such input",
    "the model has no input {name!r}; its inputs are {names}",
    why="Keys of the dict are tensor names or Parameter layer names of the model's inputs.",
    example='compiled({"data": x}) of a model whose input is "images"',
    fix="Use a name from `compiled.inputs`.",
    help="use one of: {names}",
)
INPUT_TYPE = Code(
    "IRC6303",
    "error",
    "Wrong element type",
    "{role} {name!r} is {wanted}; the array given is {given}",
    why="irc never converts the element type of an array silently: it would hide a mistake or cost a copy.",
    example="a float64 array for a float32 input",
    fix="Convert the array explicitly.",
    help="pass array.astype({wanted!r})",
)
INPUT_SHAPE = Code(
    "IRC6304",
    "error",
    "Wrong shape",
    "{role} {name!r} has the shape {wanted}; the array given has {given}",
    why="The rank and every fixed size of an array must be those of the model.",
    example="an array [1,3,224] for an input f32[1,3,224,224]",
    fix="Reshape the array, or compile for other shapes (`shapes=`, `--shape`).",
    help="give an array of the shape {wanted}",
)
SYMBOL_CONFLICT = Code(
    "IRC6305",
    "error",
    "Sizes that must be equal differ",
    "the size {symbol} is {first} by {where_first}, but {second} by {where_second}",
    why="Axes that the model gives one symbolic size must agree in all inputs of a call.",
    example="x[batch,3] with 4 rows and y[batch] with 5 elements",
    fix="Give arrays that agree.",
    help="make both arrays agree in {symbol}",
)
SYMBOL_RANGE = Code(
    "IRC6306",
    "error",
    "Size out of its declared range",
    "the size {symbol} is {given} by {where}; the model declares {lo}..{hi}",
    why="The model bounds this dimension, and code was generated for these bounds.",
    example="a dimension declared 2..8 given as 9",
    fix="Keep to the declared range, or change the model.",
    help="give a size between {lo} and {hi}",
)
NOT_CONTIGUOUS = Code(
    "IRC6307",
    "error",
    "Array is not C-contiguous",
    "{role} {name!r}: a bound array must be C-contiguous and aligned{extra}",
    why="A bound call runs on the arrays' memory itself, without a copy.",
    example="x[:, ::2] or x.T",
    fix="Bind np.ascontiguousarray(x), or call the model plainly, which copies.",
    help="bind a C-contiguous array (np.ascontiguousarray)",
)
OUTPUT_READ_ONLY = Code(
    "IRC6308",
    "error",
    "Output array is read-only",
    "output {name!r}: the array given for it cannot be written",
    why="`out=` and `bind` write results into the arrays given.",
    example="an array from np.broadcast_to or a read-only memmap",
    fix="Give a writable array.",
    help="give a writable array",
)
OUTPUT_COUNT = Code(
    "IRC6309",
    "error",
    "Wrong number of outputs",
    "the model has {wanted} outputs; {given} arrays were given for them",
    why="`out=` and `bind(outputs=)` take one array an output, in the model's order.",
    example="out=[y] of a model with two outputs",
    fix="Give one array an output.",
    help="give {wanted} arrays",
)
CANNOT_BIND = Code(
    "IRC6310",
    "error",
    "Value has no fixed buffer",
    "{role} {name!r} is {type}, which cannot be bound to an array",
    why="Sequences, optionals and tensors whose size is only known after running have no buffer to bind.",
    example="an output of NonZero",
    fix="Call the model plainly; it returns new arrays.",
    help="use compiled(...) instead of bind or out=",
)
RUN_FAILED = Code(
    "IRC6311",
    "error",
    "The model failed while running",
    "the model {model!r} failed while running: {reason}",
    why="An operation of the NumPy module raised an exception that neither the sizes nor the data of the call explain "
    "(IRC6313 and IRC6317 are about those).",
    example="a module that was edited",
    fix="Report it as a mistake of irc if the module is as irc wrote it.",
    help="this is likely a mistake of irc: please report it",
)
CODE_FAILED = Code(
    "IRC6312",
    "error",
    "The compiled model reports a run-time error",
    "the model {model!r} reports {code}: {what}",
    why="Generated code checks on entry what could not be checked when compiling.",
    example="two inputs whose batch sizes must agree",
    fix="See `irc explain` for the code reported.",
    help="check the sizes of the inputs",
)
SIZES_MISFIT = Code(
    "IRC6313",
    "error",
    "Sizes of inputs do not fit together",
    "{message}; here {sizes} ({code})",
    why="Operations make demands on sizes (equal, at most, a multiple) that only the real inputs of a model with "
    "symbolic sizes can show; they are checked before it runs. The code in brackets is what a model that breaks the "
    "demand with fixed sizes is refused with, and what generated C returns.",
    example="two inputs x[n,4] and z[m,4] that are added, with n = 3 and m = 5",
    fix="Give inputs whose sizes fit.",
    help="give arrays with sizes that fit (irc explain {code})",
)
NO_MEMORY = Code(
    "IRC6314",
    "error",
    "Not enough memory",
    "not enough memory: {reason}",
    why="The context of a model and its results are memory of the process, as much as the sizes of a call ask for.",
    example="an input of a million rows for a model that compares every row with every other",
    fix="Give smaller inputs, or use a machine with more memory.",
    help="give smaller inputs",
)
OUTPUTS_OVERLAP = Code(
    "IRC6315",
    "error",
    "Outputs share memory",
    "the arrays for the outputs {first!r} and {second!r} overlap",
    why="Each output needs memory of its own: the one written last would spoil the other.",
    example="out=[y, y] of a model with two outputs",
    fix="Give every output an array of its own. An output may overlap an input, which is copied then.",
    help="give each output an array of its own",
)
DATA_MISFIT = Code(
    "IRC6317",
    "error",
    "Data of a run do not fit",
    "{op}: the data of this run do not fit: {what}",
    why="An operation met values it is not defined for, which the model computes or takes as inputs: an axis or index "
    "out of range, a shape that does not fit, a count that is too large. What files and shapes show is checked before.",
    example="Reshape of 6 elements to a shape that is an input, given as [4,2]",
    fix="Check the values given, and those that the operation's operands are computed from.",
    help="check the values that {op} is given",
)
FOREIGN_TENSOR = Code(
    "IRC6318",
    "error",
    "A tensor of another library has no memory to share",
    "{role} {name!r}: the memory of the {kind} given cannot be used: {reason}",
    why="Tensors of torch, and of libraries that speak DLPack, are read and written where they are. That takes memory "
    "that the CPU reaches, of an element type that NumPy or ml_dtypes has, and nobody who would have to be told.",
    example="compiled(x.cuda())",
    fix="Copy it to an array that irc can use: x.detach().cpu(), np.asarray(x).",
    help="give a copy in the CPU's memory, as NumPy array or tensor",
)
NO_ARTEFACT = Code(
    "IRC6320",
    "error",
    "Not an artefact",
    "{path} holds no artefact of irc: {reason}",
    why="`irc.load_compiled` reads a folder that `compiled.save` or `irc compile -o` wrote.",
    example='irc.load_compiled("model.onnx")',
    fix="Give the folder that holds manifest.json.",
    help="compile the model first: irc compile MODEL -o DIR",
)
ARTEFACT_FORMAT = Code(
    "IRC6321",
    "error",
    "Artefact of another format",
    "{path} is an artefact of format {found}; this irc reads format {wanted}",
    why="The artefact was written by another version of irc.",
    example="an artefact of a later release",
    fix="Compile the model again with this version.",
    help="compile the model again",
)
ARTEFACT_DAMAGED = Code(
    "IRC6322",
    "error",
    "Artefact is damaged",
    "{path}: {what}",
    why="The manifest records the size and sha256 of every file, and one of them differs.",
    example="weights.bin cut short by a full disk",
    fix="Copy the folder again, or compile again.",
    help="compile the model again",
)
NO_LIBRARY = Code(
    "IRC6323",
    "error",
    "Artefact holds nothing that runs here",
    "{path} holds {holds}, which cannot be run by this process",
    why="An artefact is run from its shared library (C) or its Python module (NumPy).",
    example="an artefact emitted with --emit c only, or for another operating system",
    fix="Compile for this machine.",
    help="compile the model again on this machine (irc compile MODEL, without --emit c or for another target)",
)
ARTEFACT_OUTSIDE = Code(
    "IRC6324",
    "error",
    "Artefact names a file outside its folder",
    "{path}: its manifest names {name!r}, {reason}",
    why="The files of an artefact are in its folder: a manifest cannot make irc read, run or replace others.",
    example='"library": "../libmodel.so", or a library that is a link to another folder',
    fix="Copy the files themselves into the folder, or compile again.",
    help="compile the model again",
)
NO_THREADS = Code(
    "IRC6325",
    "error",
    "Threads cannot be started",
    "a pool of {threads} threads could not be started",
    why="Memory or the number of threads a user may have is exhausted.",
    example="ulimit -u reached",
    fix="Use fewer threads.",
    help="use fewer threads (threads=1 needs none)",
)
STATE_LOST = Code(
    "IRC6326",
    "error",
    "State lost in a fork",
    "the variables of {model!r} have no definite values: a call was running when this process was forked",
    why="A forked child gets a copy of what another thread was about to change, half of it changed.",
    example="os.fork() while a thread runs a model with a key-value cache",
    fix="Fork while no call is running, or call reset_state() in the child, or open the model there.",
    help="call reset_state(), or open the model in the child",
)
CACHE_REFUSED = Code(
    "IRC6330",
    "warning",
    "Cache folder refused",
    "the cache folder {path} is not used: {reason}",
    why="Artefacts are code. A cache that others can write could run theirs.",
    example="IRC_CACHE_DIR=/tmp",
    fix="Use a folder of your own with mode 0700.",
    help="set IRC_CACHE_DIR to a folder only you can write",
)
NO_COMPILER = Code(
    "IRC6340",
    "note",
    "No C compiler found: using NumPy",
    "no C compiler was found, so the model runs on NumPy",
    why="The C backend needs gcc or clang. Without one irc generates NumPy code, which is slower.",
    example="a slim container image",
    fix="Install gcc or clang, or set CC; or ask for backend='numpy'.",
    help="install gcc or clang, or pass backend='numpy' to silence this",
)
BAD_OPTION = Code(
    "IRC6350",
    "error",
    "Option has no such value",
    "{option}={value!r}: expected {expected}",
    why="The public functions check their options before they start.",
    example="irc.compile(model, precision='fast')",
    fix="Use one of the values named.",
    help="use {expected}",
)
BAD_SHAPE_OPTION = Code(
    "IRC6351",
    "error",
    "Shape cannot be given to that input",
    "shapes: {name!r} is {type} and cannot become {given}: {reason}",
    why="`shapes=` fixes symbolic dimensions of inputs; it cannot change a rank. Compiling cannot change a size that "
    "the model fixes; `irc convert --shape` can.",
    example='shapes={"x": (1, 3, 320, 320)} for x: f32[n,3,224,224]',
    fix="Give the declared sizes where they are numbers.",
    help="give a shape that agrees with {type}",
)
UNKNOWN_BOUND = Code(
    "IRC6352",
    "error",
    "Bound of an unknown size",
    "bounds: the model has no size or value called {name!r}",
    why="`bounds=` names a symbolic size, or a value whose size depends on data.",
    example='bounds={"detections": 100}',
    fix="Use a name that `irc info` lists.",
    help="`irc info MODEL` lists the symbolic sizes",
)
OPTION_OF_OTHER_FORMAT = Code(
    "IRC6353",
    "error",
    "Option of another format",
    "{option}={value!r} says nothing about {ending} files",
    why="An option that could not be obeyed would be a promise that the written file does not keep.",
    example='irc.save(model, "model.xml", opset=17)',
    fix="Leave the option out, or write the format it belongs to.",
    help="leave {option} out, or write a file that ends in {other}",
)
UNKNOWN_VALUE = Code(
    "IRC6354",
    "error",
    "No such value or layer",
    "the model has no value and no layer called {name!r}; the closest names are {names}",
    why="`irc convert --inputs` and `--outputs` and `irc.extract` name values (tensor names) or layers.",
    example='irc.extract(model, outputs=["conv_1"]) of a model whose layers are conv1 and conv2',
    fix="Use a name of the model; they are case-sensitive.",
    help="use one of: {names}",
)
NEEDS_INPUT = Code(
    "IRC6355",
    "error",
    "Part of a model needs another input",
    "the outputs asked for also need the input {name!r}",
    why="The part of a graph between some inputs and outputs is a model only if nothing else leads into it.",
    example='irc.extract(model, inputs=["a"], outputs=["y"]) where y = a + b',
    fix="Name the other input too, or a value behind it.",
    help="add {name!r} to the inputs",
)
NO_NUMPY_SOURCE = Code(
    "IRC6360",
    "error",
    "Operation has no NumPy code",
    "{op} cannot be written as NumPy code: {reason}",
    why="The NumPy backend writes every operation's definition into a module of its own, and this one could not be.",
    example="an operation of a custom domain",
    fix="Replace the operation in the model.",
    help="replace {op} in the source model, or use backend='c'",
)
NOT_UNDERSTOOD = Code(
    "IRC6361",
    "error",
    "Operation irc does not know",
    "{op} ({domain} {version}) is not an operation irc can compile",
    why="irc copies operations it does not know when it converts within a format; compiling needs their meaning.",
    example="a custom-domain ONNX node",
    fix="Replace the operation in the source model.",
    help="replace {op} in the source model",
)
NO_PACKAGE = Code(
    "IRC6363",
    "error",
    "A Python package is missing",
    "{user} needs the Python package {package}, which is not installed",
    why="Some operations are computed by a library that irc does not need otherwise: images are decoded by Pillow.",
    example="ImageDecoder in the NumPy backend, without Pillow",
    fix="Install the package; `pip install irc-compiler[images]` brings Pillow. Compiled C needs none.",
    help="install {package}, or use backend='c'",
)
VARYING_STATE = Code(
    "IRC6362",
    "error",
    "State of varying size",
    "the variable {variable} has the shape {shape}, whose size {size} no input of the model fixes",
    why="In C the state lies in the context, whose size is known when the inputs' sizes are; this variable's size "
    "changes from run to run.",
    example="a key-value cache that grows by one row with every call",
    fix="Compile for NumPy, or give the variable a fixed shape in the source model.",
    help="compile with backend='numpy'",
)
