"""HOCON in SeaTunnel's dialect: lexer, parser, merge, substitution."""
