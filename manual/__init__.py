"""Manual pages, completions and a configuration file, made from the commands' parsers and the configuration's declarations: `make man`.

For who packages FairGV: nothing here is installed, and nothing that is installed imports it.
"""
