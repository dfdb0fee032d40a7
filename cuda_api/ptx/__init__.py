"""
PTX, the virtual instruction set of CUDA programs, as text and as a tree.

`parse` turns text into a `Module` of frozen records, `format_module` writes such a module as text that parses to the same tree. Nothing
here knows what an instruction means: an opcode, its modifiers and its operands are taken as they stand, so that a new PTX version needs
no change here. Debug information (`.loc`, `.file`, `.section`, the word `debug` in `.target`) is dropped: what it says of lines and addresses
would not be true of a module that was changed. Comments are not kept.
"""

from cuda_api.ptx.lexer import PtxSyntaxError
from cuda_api.ptx.parser import parse
from cuda_api.ptx.printer import format_module

__all__ = ["PtxSyntaxError", "format_module", "parse"]
