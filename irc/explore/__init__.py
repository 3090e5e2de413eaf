"""What `irc explore` shows.

recording   what compiling makes of a model: the graph after each pass, functions, loops, C
page        the recording as one HTML file
"""
