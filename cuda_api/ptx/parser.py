"""
Tokens to the tree of `syntax`: recursive descent, one method for each thing PTX can contain.

Operands are parsed by shape alone. Debug directives are skipped with everything that belongs to them, and so is the target's word `debug`: an
assembler that reads it insists on finding them.
"""

from __future__ import annotations

from cuda_api.ptx.instructions import InstructionReader
from cuda_api.ptx.lexer import PtxSyntaxError, Tokens
from cuda_api.ptx.syntax import (
    Alias,
    Block,
    Function,
    Guard,
    Initialiser,
    Integer,
    Label,
    Module,
    Name,
    Offset,
    Pragma,
    Prototype,
    Statement,
    Targets,
    Tuning,
    Variable,
)

_LINKAGE = frozenset((".extern", ".visible", ".weak", ".common"))
_SPACES = frozenset((".reg", ".param", ".local", ".shared", ".const", ".global", ".tex", ".sreg"))
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
_POINTER_SPACES = frozenset((".global", ".shared", ".local", ".const", ".param"))


def parse(text: str) -> Module:
    """Text of one PTX module to its tree. Raises PtxSyntaxError, which names line and token."""
    return _Parser(Tokens(text)).module()


class _Parser(InstructionReader):
    # Module level

    def module(self) -> Module:
        self.expect(".version")
        version = self.take("float", "a version").split(".")
        targets: list[str] = []
        address_size = 32
        items: list[Function | Variable | Alias | Pragma] = []
        while self.kinds[self.at] != "end":
            if self.accept(".target"):
                targets.extend(word for word in self._names("a target") if word != "debug")
            elif self.accept(".address_size"):
                address_size = self.integer()
            elif self.accept(";"):
                continue
            elif not self._debug_directive():
                items.append(self._item())
        try:
            major_minor = (int(version[0]), int(version[1]))
        except ValueError:
            raise PtxSyntaxError("not a version", 1, ".".join(version)) from None
        return Module(major_minor, tuple(targets), address_size, tuple(items))

    def _item(self) -> Function | Variable | Alias | Pragma:
        if self.peek() == ".pragma":
            return self._pragma()
        if self.accept(".alias"):
            name = self.take("name", "a name")
            self.expect(",")
            target = self.take("name", "a name")
            self.expect(";")
            return Alias(name, target)
        linkage = ""
        if self.peek() in _LINKAGE:
            linkage = self.peek()[1:]
            self.at += 1
        if self.peek() in (".entry", ".func"):
            return self._function(linkage)
        if self.peek() in _SPACES:
            return self._variable(linkage)
        raise self.error("expected a function or a variable")

    def _debug_directive(self) -> bool:
        text = self.peek()
        if text in (".loc", ".file"):
            line = self.line()
            while self.kinds[self.at] != "end" and self.line() == line:
                self.at += 1
            return True
        if text == ".section":
            while self.peek() != "{":
                if self.kinds[self.at] == "end":
                    raise self.error("expected a section's body")
                self.at += 1
            while not self.accept("}"):
                if self.kinds[self.at] == "end":
                    raise self.error("expected the end of a section")
                self.at += 1
            return True
        return False

    def _names(self, what: str) -> tuple[str, ...]:
        names = [self.take("name", what)]
        while self.accept(","):
            names.append(self.take("name", what))
        return tuple(names)

    def _pragma(self) -> Pragma:
        self.expect(".pragma")
        values = [self.take("string", "a string")[1:-1]]
        while self.accept(","):
            values.append(self.take("string", "a string")[1:-1])
        self.expect(";")
        return Pragma(tuple(values))

    # Functions

    def _function(self, linkage: str) -> Function:
        line = self.line()
        is_entry = self.peek() == ".entry"
        self.at += 1
        attributes = self._attribute()
        returns = self._parameters() if self.peek() == "(" else ()
        name = self.take("name", "a function's name")
        parameters = self._parameters() if self.peek() == "(" else ()
        tuning = self._tuning()
        body = None
        if self.peek() == "{":
            body = self._block()
        else:
            self.expect(";")
        return Function(is_entry, name, returns, parameters, linkage, tuning, body, attributes, line)

    def _tuning(self) -> tuple[Tuning | Pragma, ...]:
        tuning: list[Tuning | Pragma] = []
        while self.kinds[self.at] == "dot":
            if self.peek() == ".pragma":
                tuning.append(self._pragma())
                continue
            if self._debug_directive():
                continue
            word = self.take("dot", "a directive")[1:]
            values: list[int] = []
            if self.kinds[self.at] == "int":
                values.append(self.integer())
                while self.accept(","):
                    values.append(self.integer())
            tuning.append(Tuning(word, tuple(values)))
        return tuple(tuning)

    def _parameters(self) -> tuple[Variable, ...]:
        self.expect("(")
        parameters: list[Variable] = []
        while not self.accept(")"):
            if parameters:
                self.expect(",")
            parameters.append(self._declaration(""))
        return tuple(parameters)

    def _attribute(self) -> tuple[str, ...]:
        if not self.accept(".attribute"):
            return ()
        self.expect("(")
        words: list[str] = []
        depth = 1
        while depth:
            if self.kinds[self.at] == "end":
                raise self.error("expected ')'")
            text = self.peek()
            self.at += 1
            depth += (text == "(") - (text == ")")
            if depth:
                words.append(text)
        return (".attribute", "(", *words, ")")

    def _block(self) -> Block:
        self.expect("{")
        statements: list[Statement] = []
        with self.nested():
            while not self.accept("}"):
                statement = self._statement(statements)
                if statement is not None:
                    statements.append(statement)
        return Block(tuple(statements))

    def _statement(self, before: list[Statement]) -> Statement | None:
        kind = self.kinds[self.at]
        if kind == "name":
            if self.texts[self.at + 1] == ":":
                return self._label()
            return self.instruction(None)
        text = self.peek()
        if text == "@":
            self.at += 1
            negated = self.accept("!")
            return self.instruction(Guard(self.take("name", "a predicate"), negated))
        if text == "{":
            return self._block()
        if text == ";":
            self.at += 1
            return None
        if text == ".pragma":
            return self._pragma()
        if text in _SPACES or text in _LINKAGE:
            linkage = ""
            if text in _LINKAGE:
                linkage = text[1:]
                self.at += 1
            declarations = self._variables(linkage)
            before.extend(declarations[:-1])
            return declarations[-1]
        if self._debug_directive():
            return None
        raise self.error("expected a statement")

    def _label(self) -> Statement:
        name = self.take("name", "a label")
        self.expect(":")
        if self.accept(".callprototype"):
            returns = self._parameters() if self.peek() == "(" else ()
            self.take("name", "'_'")
            parameters = self._parameters() if self.peek() == "(" else ()
            attributes = tuple(item.name for item in self._tuning() if isinstance(item, Tuning))
            self.expect(";")
            return Prototype(name, returns, parameters, attributes)
        if self.peek() in (".branchtargets", ".calltargets"):
            kind = self.take("dot", "a directive")[1:]
            targets = self._names("a target")
            self.expect(";")
            return Targets(name, kind, targets)
        return Label(name)

    # Declarations

    def _variable(self, linkage: str) -> Variable:
        variable = self._declaration(linkage)
        self.expect(";")
        return variable

    def _variables(self, linkage: str) -> list[Variable]:
        """`.reg .f32 a, b;` gives two."""
        first = self._declaration(linkage)
        variables = [first]
        while self.accept(","):
            line = self.line()
            name, count, dimensions = self._declarator()
            initialiser = self._initialiser() if self.accept("=") else None
            variables.append(
                Variable(
                    first.space,
                    first.type,
                    name,
                    first.vector,
                    first.alignment,
                    dimensions,
                    count,
                    initialiser,
                    linkage,
                    first.attributes,
                    line,
                )
            )
        self.expect(";")
        return variables

    def _declaration(self, linkage: str) -> Variable:
        line = self.line()
        if self.peek() not in _SPACES:
            raise self.error("expected a state space")
        space = self.take("dot", "a state space")[1:]
        alignment = 0
        vector = 1
        type_name = ""
        attributes: tuple[str, ...] = ()
        while self.kinds[self.at] == "dot":
            word = self.peek()
            if word == ".attribute":
                attributes += self._attribute()
            elif word == ".ptr":
                attributes += self._pointer()
            elif word == ".align":
                self.at += 1
                alignment = self.integer()
            else:
                self.at += 1
                if word in _VECTORS:
                    vector = _VECTORS[word]
                else:
                    type_name = word[1:]
        if not type_name:
            raise self.error("expected a type")
        name, count, dimensions = self._declarator()
        initialiser = self._initialiser() if self.accept("=") else None
        return Variable(
            space, type_name, name, vector, alignment, dimensions, count, initialiser, linkage, attributes, line
        )

    def _pointer(self) -> tuple[str, ...]:
        words = [self.take("dot", "'.ptr'")]
        if self.peek() in _POINTER_SPACES:
            words.append(self.take("dot", "a state space"))
        if self.accept(".align"):
            words += [".align", str(self.integer())]
        return tuple(words)

    def _declarator(self) -> tuple[str, int | None, tuple[int, ...]]:
        name = self.take("name", "a name")
        count: int | None = None
        if self.accept("<"):
            count = self.take_integer_token()
            if count is None:
                raise self.error("expected a number of registers")
            self.expect(">")
        dimensions: list[int] = []
        while self.accept("["):
            dimensions.append(0 if self.peek() == "]" else self.integer())
            if dimensions[-1] < 0:
                raise self.error("an array of less than nothing")
            self.expect("]")
        return name, count, tuple(dimensions)

    def _initialiser(self) -> Initialiser:
        if self.accept("{"):
            values: list[Initialiser] = []
            with self.nested():
                while not self.accept("}"):
                    if values:
                        self.expect(",")
                    values.append(self._initialiser())
            return tuple(values)
        literal = self.float_literal()
        if literal is not None:
            return literal
        if self.kinds[self.at] == "name":
            return self._symbol(None)
        if self.kinds[self.at] == "int" and self.texts[self.at + 1] == "(":
            mask = self.take_integer_token()
            return self._symbol(mask)
        return Integer(self.integer())

    def _symbol(self, mask: int | None) -> Name | Offset:
        is_generic = self.accept("generic")
        if is_generic or mask is not None:
            self.expect("(")
            name, inner, nested = self._symbol_parts()
            is_generic |= nested
            self.expect(")")
            return Offset(name, inner + self.plus(), is_generic, mask)
        name = self.name(self.take("name", "a symbol"))
        offset = self.plus()
        return Offset(name, offset) if offset else name

    def _symbol_parts(self) -> tuple[Name, int, bool]:
        if self.accept("generic"):
            self.expect("(")
            name = self.name(self.take("name", "a symbol"))
            self.expect(")")
            return name, self.plus(), True
        return self.name(self.take("name", "a symbol")), self.plus(), False
