"""Manual pages and completions, made from the commands' parsers and from the declarations of the configuration. `make man` writes them.

For who packages FairGV: nothing here is installed, and nothing that is installed imports it.
"""
