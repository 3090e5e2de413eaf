"""IRC9xxx: our own bugs."""

from irc.diagnostics.code import Code

NO_SUCH_OP = Code(
    "IRC9001",
    "error",
    "irc asked for an operation it does not have",
    "irc's own code asked for the canonical operation {op}, which does not exist",
    why="A rewrite inside irc names an operation that is not registered.",
    example="b.Multiplyy(x, y) in a decomposition",
    fix="This is a bug in irc; nothing in the model can be at fault.",
    help="please report it with the model, or a reduced one",
)
CRASH = Code(
    "IRC9002",
    "error",
    "Internal error",
    "internal error: {what}",
    why="irc reached a state that its authors thought impossible.",
    example="an exception in a pass",
    fix="This is a bug in irc. `IRC_TRACEBACK=1` prints where it happened.",
    help="please report it with the model, or a reduced one",
)
NOT_VERIFIED = Code(
    "IRC9003",
    "error",
    "Graph is inconsistent",
    "the graph is inconsistent after {stage}: {what}",
    why="Every pass must leave a graph whose edges, names and types agree; this one did not.",
    example="a node whose operand is produced by a removed node",
    fix="This is a bug in irc.",
    help="please report it with the model, or a reduced one",
)
