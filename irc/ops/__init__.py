"""Operations, one family per file.  Importing a family registers its operations; `irc.opdef.base.load_all`
imports them all.  `base` says what an operation is, `forms` what a version is, `codecs` what an attribute is.
"""
