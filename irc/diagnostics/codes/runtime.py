"""IRC6001..6299: the C compiler, targets, and what compiled models return (6101 and following)."""

from irc.diagnostics.code import Code

NO_COMPILER = Code(
    "IRC6001",
    "error",
    "No C compiler",
    "no C compiler was found (looked for {looked_for})",
    why="The C backend compiles the generated code with a compiler of the machine.",
    example='irc.compile(model, backend="c") on a machine without gcc or clang',
    fix="Install gcc or clang (or the Python package ziglang), set CC, or use the NumPy backend.",
    help='install gcc or clang, set CC to a compiler, or use backend="numpy"',
)
COMPILER_UNUSABLE = Code(
    "IRC6002",
    "error",
    "The C compiler does not work",
    "{command} does not work as a C compiler: {reason}",
    why="Before it is used, a compiler is asked for its version, which is part of the cache key.",
    example="CC=/usr/bin/false",
    fix="Set CC to a working C compiler.",
    help="set CC to a working C compiler",
)
COMPILE_FAILED = Code(
    "IRC6003",
    "error",
    "The C compiler refused generated code",
    "{command} failed on {file} (exit status {status})",
    why="Generated code compiles with gcc 12 and clang 14 and later; older or other compilers may lack something.",
    example="a compiler without C11",
    fix="Use a newer compiler.  If yours is recent, this is a mistake of irc: please report it with the message.",
    help="use gcc 12, clang 14 or later; if that is what you have, please report this with the model",
)
COMPILE_TIMEOUT = Code(
    "IRC6004",
    "error",
    "The C compiler took too long",
    "{command} did not finish {file} within {seconds} s",
    why="Compilation of each file has a time limit, so that a stuck compiler does not block for ever.",
    example="a machine with too little memory",
    fix="Set IRC_COMPILE_TIMEOUT to more seconds.",
    help="set the environment variable IRC_COMPILE_TIMEOUT to more seconds",
)
UNKNOWN_TARGET = Code(
    "IRC6005",
    "error",
    "Unknown target",
    "target {target} is not known{guess}",
    why="A target names a processor: its instruction set decides which code may be generated.",
    example='target="x86-64-v5"',
    fix="Use one of the known targets.",
    help="use one of {known}",
)
FOREIGN_TARGET = Code(
    "IRC6006",
    "error",
    "Target of another processor family",
    "target {target} cannot be built on {machine} with {command}",
    why="Only a cross compiler builds for another processor family.",
    example='target="aarch64" with the gcc of an x86-64 machine',
    fix="Install the named cross compiler or the Python package ziglang, which builds for most targets, or set CC to "
    "another; or choose a target of this machine.",
    help="install that, or the Python package ziglang; or set CC to a cross compiler for {target}; or choose a target "
    "of {machine}",
)
MISSING_FEATURES = Code(
    "IRC6007",
    "error",
    "The processor lacks instructions of the artefact",
    "the artefact was built for {target} and needs {missing}, which this processor does not have",
    why="Running it would end in an illegal instruction.",
    example="an artefact built on a machine with AVX-512, loaded on one without",
    fix="Compile the model again on this machine, or for a lower target.",
    help="compile the model again on this machine, or with target=x86-64-v2",
)
NO_LIBRARIES = Code(
    "IRC6008",
    "error",
    "Target without shared libraries",
    "there are no shared libraries for {target}",
    why="A microcontroller runs one program, which is linked as a whole; plain C11 is for a compiler not known yet.",
    example='irc.compile("model.onnx", target="cortex-m4")',
    fix="Take the sources, `irc compile --emit c`, and compile them into your program: the folder has a Makefile.",
    help="write sources for {target} instead: irc compile --target {target} --emit c",
)
MEMORY_MISALIGNED = Code(
    "IRC6101",
    "error",
    "Context or weights missing or misaligned",
    "the memory of the context and the weights must be present and aligned to 64 bytes",
    why="Generated code relies on the alignment.",
    example="P_init with memory of malloc",
    fix="Use aligned_alloc(64, size) or posix_memalign, and load weights.bin to memory aligned to 64.",
    help="allocate the context and the weights aligned to 64 bytes",
)
NOT_PLANNED = Code(
    "IRC6102",
    "error",
    "Sizes are not set",
    "the model was run before its sizes were set",
    why="A model with symbolic sizes needs them before it runs: they decide where its buffers lie.",
    example="P_run after P_init, without P_plan",
    fix="Call P_plan with the sizes first.",
    help="call P_plan with the sizes first",
)
NOT_INITIALISED = Code(
    "IRC6110",
    "error",
    "Context is not initialised",
    "the memory of the context holds no context",
    why="What is in the memory before P_init is undefined, places of weights and tensors included.",
    example="P_run or P_plan without P_init",
    fix="Call P_init first, and keep the memory as it leaves it.",
    help="call P_init first",
)
SIZE_OUT_OF_RANGE = Code(
    "IRC6103",
    "error",
    "Size outside its range",
    "a size is missing or outside the range that model.h states",
    why="The model declares bounds for its symbolic sizes.",
    example="a batch of 9 where the model says 1 to 8",
    fix="Pass sizes within the bounds.",
    help="pass sizes within the bounds that model.h states",
)
MODEL_TOO_LARGE = Code(
    "IRC6105",
    "error",
    "Sizes are too large",
    "with these sizes a tensor would have more than 2^40 elements, or all memory together more than 2^62 bytes",
    why="Generated code computes indices, offsets and sizes as 64-bit numbers. A size of 0 does not make up for "
    "others, because partial products and strides have to fit too.",
    example="three sizes of 2^31 - 1 that are multiplied",
    fix="Pass smaller sizes.",
    help="pass smaller sizes",
)
TILES_REFUSED = Code(
    "IRC6106",
    "error",
    "The operating system refuses AMX",
    "the model was compiled for AMX, which this processor lacks or the operating system refuses",
    why="Linux lets a process use AMX tiles only when it asks for them, which P_init does; before 5.16 it never does.",
    example="a model compiled on a machine with AMX, run in a sandbox without it",
    fix="Compile the model for x86-64-v4 or a lower target, or run it where AMX is allowed.",
    help="compile with target=x86-64-v4",
)
SIZE_BEYOND_BOUND = Code(
    "IRC6108",
    "error",
    "A computed size is beyond its bound",
    "a size that the model computes from its data is larger than the memory that was planned for it",
    why="Memory is planned before a run, with an upper bound for each size that only the run tells: what the model "
    "implies, what --bound said when compiling, or what P_plan was given.",
    example="a Range whose limit is 1000, compiled with --bound for 100",
    fix="Compile with a larger --bound.  Where model.h lists the bound among the dims, call P_plan with a larger one; "
    "P_needed tells which.",
    help="plan or compile with a larger bound",
)
SIZE_NEGATIVE = Code(
    "IRC6107",
    "error",
    "Sizes are too small",
    "with these sizes a tensor would have a negative size",
    why="Windows and crops take a fixed amount off a size, which has to be there.",
    example="a convolution with a window of 7 over a row of 3 elements",
    fix="Pass larger sizes.",
    help="pass larger sizes",
)
IMAGE_DAMAGED = Code(
    "IRC6109",
    "error",
    "An image cannot be decoded",
    "the bytes given to ImageDecoder are no image of a known format, or a damaged one",
    why="A file that is cut off or corrupt has no pixels that mean something. Files of rare kinds of the known formats "
    "are refused in the same way, and images of more than 178,956,970 pixels, as Pillow does.",
    example="a JPEG file without its second half",
    fix="Give the model the bytes of a whole BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP file.",
    help="give the model the bytes of a whole image file",
)
STATUSES = (
    MEMORY_MISALIGNED,
    NOT_INITIALISED,
    NOT_PLANNED,
    SIZE_OUT_OF_RANGE,
    MODEL_TOO_LARGE,
    TILES_REFUSED,
    SIZE_NEGATIVE,
    SIZE_BEYOND_BOUND,
)
"""What functions of any compiled model may return; those of one model, the codes of its size constraints besides."""
REFUSED_INPUTS = (SIZE_OUT_OF_RANGE, MODEL_TOO_LARGE, SIZE_NEGATIVE, SIZE_BEYOND_BOUND, IMAGE_DAMAGED)
"""Those that inputs cause: their sizes or their data."""
