"""The tree of `syntax` as PTX text. Parsing the text gives the same tree; the layout is ours, not the original's."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.ptx.syntax import (
    Address,
    Alias,
    Arguments,
    Block,
    Bracket,
    Float,
    Function,
    Initialiser,
    Instruction,
    Integer,
    Label,
    Module,
    Name,
    Negated,
    Not,
    Offset,
    Operand,
    Pair,
    Pragma,
    Prototype,
    Statement,
    Targets,
    Tuning,
    Variable,
    Vector,
)


def format_module(module: Module) -> str:
    """The text of a whole module."""
    lines = [f".version {module.version[0]}.{module.version[1]}"]
    if module.targets:
        lines.append(f".target {', '.join(module.targets)}")
    lines.append(f".address_size {module.address_size}")
    for item in module.items:
        if isinstance(item, Function):
            lines.extend(_function(item))
        elif isinstance(item, Variable):
            lines.append(_variable(item) + ";")
        elif isinstance(item, Alias):
            lines.append(f".alias {item.name}, {item.target};")
        else:
            lines.append(_pragma(item))
    return "\n".join(lines) + "\n"


def _pragma(pragma: Pragma) -> str:
    return ".pragma " + ", ".join(f'"{value}"' for value in pragma.values) + ";"


def _function(function: Function) -> Iterator[str]:
    words = [f".{function.linkage}"] if function.linkage else []
    words.append(".entry" if function.is_entry else ".func")
    words.extend(function.attributes)
    if function.returns:
        words.append(_parameters(function.returns))
    words.append(function.name + (_parameters(function.parameters) if function.parameters else ""))
    yield " ".join(words)
    for tuning in function.tuning:
        yield _pragma(tuning) if isinstance(tuning, Pragma) else _tuning(tuning)
    if function.body is None:
        yield ";"
    else:
        yield from _block(function.body, "")


def _tuning(tuning: Tuning) -> str:
    return f".{tuning.name} {', '.join(map(str, tuning.values))}".rstrip()


def _parameters(parameters: tuple[Variable, ...]) -> str:
    return "(" + ", ".join(map(_variable, parameters)) + ")"


def _variable(variable: Variable) -> str:
    words = [f".{variable.linkage}"] if variable.linkage else []
    words.append(f".{variable.space}")
    pointer = variable.attributes and variable.attributes[0] == ".ptr"
    if variable.attributes and not pointer:
        words.append("".join(variable.attributes))
    if variable.alignment:
        words.append(f".align {variable.alignment}")
    if variable.vector != 1:
        words.append(f".v{variable.vector}")
    words.append(f".{variable.type}")
    if pointer:
        words.extend(variable.attributes)
    name = variable.name
    if variable.range_count is not None:
        name += f"<{variable.range_count}>"
    name += "".join(f"[{count}]" if count else "[]" for count in variable.dimensions)
    words.append(name)
    if variable.initialiser is not None:
        words.append("= " + _initialiser(variable.initialiser))
    return " ".join(words)


def _initialiser(value: Initialiser) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(map(_initialiser, value)) + "}"
    return _operand(value)


def _block(block: Block, indent: str) -> Iterator[str]:
    yield indent + "{"
    for statement in block.statements:
        if isinstance(statement, Block):
            yield from _block(statement, indent + "\t")
        else:
            yield indent + ("" if isinstance(statement, Label) else "\t") + _statement(statement)
    yield indent + "}"


def _statement(statement: Statement) -> str:
    match statement:
        case Instruction():
            return _instruction(statement)
        case Label(name):
            return f"{name}:"
        case Variable():
            return _variable(statement) + ";"
        case Prototype(name, returns, parameters, attributes):
            head = f"{name}: .callprototype "
            tail = "".join(f" .{word}" for word in attributes)
            return head + (_parameters(returns) if returns else "") + " _ " + _parameters(parameters) + tail + ";"
        case Targets(name, kind, targets):
            return f"{name}: .{kind} {', '.join(targets)};"
        case Pragma():
            return _pragma(statement)
        case Block():
            return "\n".join(_block(statement, ""))


def _instruction(instruction: Instruction) -> str:
    guard = ""
    if instruction.guard:
        guard = f"@{'!' if instruction.guard.is_negated else ''}{instruction.guard.predicate} "
    if not instruction.operands:
        return f"{guard}{instruction.spelling};"
    return f"{guard}{instruction.spelling} {', '.join(map(_operand, instruction.operands))};"


def _list(elements: tuple[Operand, ...]) -> str:
    return ", ".join(map(_operand, elements))


def _plus(offset: int) -> str:
    return f"+{offset}" if offset else ""


def _operand(operand: Operand) -> str:
    match operand:
        case Name(text, component):
            return f"{text}.{component}" if component else text
        case Integer(value):
            return str(value)
        case Float(bits, width):
            return f"0f{bits:08X}" if width == 32 else f"0d{bits:016X}"
        case Address(base, offset):
            return f"[{_operand(base)}{_plus(offset)}]"
        case Vector(elements):
            return "{" + _list(elements) + "}"
        case Pair(first, second):
            return f"{_operand(first)}|{_operand(second)}"
        case Not(name):
            return f"!{_operand(name)}"
        case Negated(name):
            return f"-{_operand(name)}"
        case Arguments(elements):
            return f"({_list(elements)})"
        case Bracket(elements):
            return f"[{_list(elements)}]"
        case Offset():
            return _offset(operand)


def _offset(value: Offset) -> str:
    text = _operand(value.symbol)
    if value.is_generic:
        text = f"generic({text})"
    if value.mask is not None:
        text = f"{value.mask}({text})"
    return text + _plus(value.offset)
