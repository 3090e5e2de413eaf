"""Pictures of models: what `irc explore` and `irc draw` show.

recording   what compiling makes of a model: the graph after each pass, functions, loops, C
picture     a graph as boxes and lines, which placement puts in layers
page        the recording as one HTML file; svg: a picture as an SVG file
"""
