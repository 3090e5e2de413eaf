"""Codes of the command line's own findings: IRC4900..4999."""

from irc.diagnostics.code import Code

CHECK_DIFFERS = Code(
    "IRC4901",
    "error",
    "Written model computes something else",
    "the written model does not compute what the source does: {reason}",
    why="After writing, `irc convert` runs the source and the written model on the same random inputs. "
    "Their results differ by more than rounding explains, so the written model is thrown away.",
    example="a conversion that loses an attribute",
    fix="`--no-check` writes the model all the same, for instance to look at it.",
    help="please report it with the model, or a reduced one",
)
NOT_CHECKED = Code(
    "IRC4902",
    "note",
    "Conversion was not checked",
    "the written model was not compared with the source: {reason}",
    why="The check after a conversion runs both models. That needs every operation of the model to be supported, "
    "inputs that random arrays can stand for, and results that are not random.",
    example="a model with an operation that irc copies without knowing it",
    fix="Nothing is wrong with the written model as far as irc can tell; compare it on inputs of your own.",
    help="`irc run --input x=FILE` runs a model on given inputs",
)
CANNOT_WRITE = Code(
    "IRC4903",
    "error",
    "File cannot be written",
    "{path} cannot be written: {reason}",
    why="The folder does not exist, is not writable, or the disk is full.",
    example="irc convert model.onnx no/such/folder/model.xml",
    fix="Create the folder, or write somewhere else.",
    help="name a folder that exists and is writable",
)
NO_PEER = Code(
    "IRC4904",
    "error",
    "Engine is not installed",
    "{engine} cannot be used: {reason}",
    why="`irc bench --vs`, `irc convert --check` and `irc compare --engines` run other engines from the same Python; "
    "this one could not be imported.",
    example="irc bench model.onnx --vs openvino",
    fix="Install it, or do not ask for it: irc itself needs no other engine.",
    help="python -m pip install {package}",
)
NO_CLOCK = Code(
    "IRC4905",
    "error",
    "Compiled folder cannot be profiled",
    "the folder was compiled without a clock around its functions",
    why="`irc profile` reads the times that a compiled model notes around each of its functions. Models are compiled "
    "without that unless it is asked for.",
    example="irc compile model.onnx -o build; irc profile build",
    fix="Profile the model itself, or compile the folder again with `--profile`.",
    help="irc compile MODEL --profile -o DIR",
)
LEFT_BEHIND = Code(
    "IRC4906",
    "note",
    "Something has no place in the target format",
    "{format} has no place for {what}",
    why="What a model computes is converted; what else its file says can have no counterpart. OpenVINO IR knows no doc "
    "strings, producers and names of sizes, ONNX no layouts, bounds of sizes and second names of tensors, and runtime "
    "information only as metadata.",
    example="irc convert documented.onnx model.xml",
    fix="Keep the source file where these matter.",
    help="the converted model computes the same without it",
)
ENGINE_CANNOT_READ = Code(
    "IRC4907",
    "error",
    "Engine does not read the format",
    "{engine} reads {endings} files only",
    why="ONNX Runtime reads ONNX, OpenVINO both formats; irc's own engines read every model.",
    example="irc convert model.xml other.xml --check onnxruntime",
    fix="Compare with an engine that reads one of both files.",
    help="name openvino or numpy",
)
ENGINE_FAILED = Code(
    "IRC4908",
    "error",
    "Another engine failed",
    "{engine} cannot run the model: {reason}",
    why="An engine that was asked for by name refused the model or failed while running it; what it says is its own.",
    example="an operator that ONNX Runtime has not implemented for an element type",
    fix="Compare with another engine, or convert without it.",
    help="irc's own backend is called numpy: --check numpy, --engines numpy,numpy",
)
ENGINE_DIFFERS = Code(
    "IRC4909",
    "warning",
    "Another engine computes something else",
    "{engine} computes something else from the written model: {reason}; in irc's NumPy backend both models agree",
    why="After writing, `irc convert` runs the written model in the engine of its format, where that is installed. "
    "Engines depart from specifications, compute quantized models in another precision, and break ties otherwise; but "
    "a mistake of irc in what it both writes and reads would look like this too.",
    example="a detection model, whose boxes come in another order",
    fix="Compare layer by layer on inputs of your own: `irc compare A B --layers --engines numpy,openvino`.",
    help="irc compare A B --layers names the first tensor that differs",
)
NO_PAIRS = Code(
    "IRC4910",
    "error",
    "Models do not fit together",
    "the models have no {what} in common: {reason}",
    why="`irc compare --layers` pairs inputs and outputs by name, or by position where there are as many, and tensors "
    "inside by the names that a conversion keeps.",
    example="two models of different networks",
    fix="Compare models that were made of one another.",
    help="irc info MODEL lists inputs and outputs",
)
RELEASE_FIXES_SIZES = Code(
    "IRC4911",
    "warning",
    "The release runs fixed sizes only",
    "OpenVINO {release} runs this model only after sizes are given to {inputs}",
    why="Releases before 2022.1 read inputs whose sizes vary, but their devices fix all sizes when a model is loaded.",
    example="irc convert detector.onnx detector.xml --for-openvino 2021.4, where the batch is a name",
    fix="Fix the sizes when converting, or call `net.reshape({{...}})` between `read_network` and `load_network`.",
    help="--shape fixes them here, `net.reshape` in the program that loads the model",
)
