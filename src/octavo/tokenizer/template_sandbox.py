# SPDX-License-Identifier: Apache-2.0
"""A jinja2 environment in which a template can neither reach the program nor exhaust it.

jinja2's own sandbox guards attributes; it does not stop ``'x' * 10**10`` or loops within loops.
Here everything that can repeat or enlarge is charged, before it happens, to the budget of the
rendering: each loop round, each call, each operator and filter that makes a string or a list. One
unit is about a character. A rendering may spend ``WORK_MAX`` plus a multiple of the size of its
input, which bounds its memory to some hundred MB and its time to seconds for hostile templates;
ordinary ones use less than a thousandth of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import TemplateRuntimeError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

WORK_MAX = 1 << 26  # units: at 64 a loop round, a million rounds or about a second
WORK_PER_INPUT_UNIT = 64  # a template may copy each message this often
ELEMENT_UNITS = 64  # bytes of a list or dict entry, and of the time to look at it
TOO_MUCH = 1 << 62  # above every budget
PADDING_MAX = 1000  # the widest padding or indentation

# No expanding ones (translate, expandtabs, format_map) and no way to bytes.
STR_METHODS = frozenset(
    "capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal "
    "isdigit islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix "
    "removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip "
    "swapcase title upper".split()
)
PLAIN_FILTERS = (
    "abs capitalize count d default dictsort e escape first float groupby int items last length "
    "list lower map max min reject rejectattr reverse safe select selectattr sort string sum title "
    "trim truncate unique upper wordcount"
).split()

_spent: ContextVar[list[int]] = ContextVar("units left for the template that this thread renders")


class TooMuchWork(TemplateRuntimeError):
    """A template used up its budget."""


@contextmanager
def budget(values: Mapping[str, object]) -> Iterator[None]:
    """Everything rendered or compiled inside shares one budget, sized for the input ``values``."""
    token = _spent.set([WORK_MAX + WORK_PER_INPUT_UNIT * min(units(values), WORK_MAX)])
    try:
        yield
    finally:
        _spent.reset(token)


def charge(amount: int) -> None:
    """Spend units of the budget in force. Raises ``TooMuchWork`` when it is used up."""
    left = _spent.get()
    left[0] -= amount
    if left[0] < 0:
        raise TooMuchWork("the template does too much work")


def units(*values: object) -> int:
    """The size of values, nested ones included. Above ``WORK_MAX`` it stops counting and answers
    ``TOO_MUCH``: lists may share lists, so that their text is exponentially longer than their
    memory.
    """
    total, rest = 0, list(values)
    while rest and total <= WORK_MAX:
        value = rest.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, int):
            total += 1 + value.bit_length() // 8
        elif isinstance(value, dict | list | tuple | set):
            total += 1 + ELEMENT_UNITS * len(value)
            if total <= WORK_MAX:
                rest.extend(value)
                rest.extend(value.values() if isinstance(value, dict) else ())
        else:
            total += 1
    return total if total <= WORK_MAX else TOO_MUCH


class Sandbox(ImmutableSandboxedEnvironment):
    """Offers what transformers offers to templates, and charges for it."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing is computed before there is a budget
            finalize=_charged_output,
            extensions=[GenerationTag, loopcontrols],
        )
        self.globals.pop("lipsum")
        self.filters = {name: _metered(FILTERS[name]) for name in PLAIN_FILTERS}
        self.filters |= {name: _metered(function) for name, function in OWN_FILTERS.items()}
        self.filters |= {"_rounds": _rounds, "_slice": _slice, "_concat": _concat}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        charge(_operator_cost(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        charge(ELEMENT_UNITS + units(args, kwargs) + _method_cost(__obj, args))
        result = super().call(__context, __obj, *args, **kwargs)
        charge(units(result))
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in STR_METHODS
        if isinstance(obj, int | float):
            return False  # int.to_bytes makes as many bytes as it is told
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """``str.format`` without widths, which could be of any size."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and re.search(r"\{[^{}]*:[^{}]*[\d{]", value.__self__):
            raise SecurityError("widths in format strings are not supported")
        return wrapped

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Route what repeats or enlarges without a call through filters that charge."""
        tree = super()._parse(source, name, filename)
        _rewrite(tree)
        return tree


class GenerationTag(Extension):
    """``{% generation %}...{% endgeneration %}`` marks the assistant's words, for training. Here it
    is only its content.
    """

    tags = {"generation"}  # noqa: RUF012 (the type that jinja2 declares)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _rewrite(tree: nodes.Node) -> None:
    for field, child in list(tree.iter_fields()):
        if isinstance(child, list):
            setattr(tree, field, [_rewritten(item) for item in child])
        else:
            setattr(tree, field, _rewritten(child))


def _rewritten(node: Any) -> Any:
    if not isinstance(node, nodes.Node):
        return node
    _rewrite(node)
    if isinstance(node, nodes.For):
        # a round costs its entry, the text in its body and something for each thing done there
        body = list(node.find_all(nodes.Node))
        text = sum(len(each.data) for each in body if isinstance(each, nodes.TemplateData))
        cost = nodes.Const(ELEMENT_UNITS + text + 8 * len(body))
        node.iter = _filter(node.iter, "_rounds", [cost])
    elif isinstance(node, nodes.Concat):
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "_concat", [])
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        ends = (node.arg.start, node.arg.stop, node.arg.step)
        return _filter(node.node, "_slice", [end or nodes.Const(None) for end in ends])
    return node


def _filter(node: nodes.Node, name: str, args: list[nodes.Expr]) -> nodes.Filter:
    made = nodes.Filter(node, name, args, [], None, None, lineno=node.lineno)
    if node.environment is not None:
        made.set_environment(node.environment)
    return made


def _rounds(values: Iterable[object], cost: int) -> Iterator[object]:
    for value in values:
        charge(cost)
        yield value


def _slice(value: Any, start: object, stop: object, step: object) -> object:
    charge(units(value))
    return value[start:stop:step]


def _concat(values: list[object]) -> str:
    charge(units(values))
    return "".join(map(str, values))


def _charged_output(value: object) -> object:
    charge(units(value))
    return value


def _metered(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # keeps the marks by which jinja2 knows what to pass
    def run(*args: Any, **kwargs: Any) -> Any:
        charge(units(args, kwargs))
        result = function(*args, **kwargs)
        charge(units(result))
        return result

    return run


def _operator_cost(operator: str, left: object, right: object) -> int:
    if operator == "*":
        if isinstance(left, int) and isinstance(right, int):
            return left.bit_length() * right.bit_length() >> 6
        count = left if isinstance(left, int) else right
        return units(left, right) * (abs(count) if isinstance(count, int) else 1)
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        return left.bit_length() * abs(right)
    if operator == "%" and isinstance(left, str):
        widths = [len(digits) for digits in re.findall(r"\d+", left)]
        if "*" in left or max(widths, default=0) > len(str(PADDING_MAX)):
            raise SecurityError("such widths are not supported")
        return units(left, right) + 10 * PADDING_MAX * len(widths)
    return units(left, right)


def _method_cost(method: object, args: tuple[Any, ...]) -> int:
    """What ``str.replace`` and ``str.join`` make of their arguments; others do not enlarge."""
    owner = getattr(method, "__self__", None)
    if not isinstance(owner, str):
        return 0
    name = getattr(method, "__name__", "")
    if name == "replace" and len(args) >= 2:
        return _replace_cost(owner, *args[:2])
    if name == "join" and args:
        return len(owner) * _length(args[0])
    return 0


def _replace_cost(text: str, old: object, new: object) -> int:
    return text.count(str(old)) * len(str(new))


def _length(values: object) -> int:
    return len(values) if isinstance(values, list | tuple | str | Mapping | range) else WORK_MAX


def _join(values: Iterable[object], d: object = "", attribute: str | None = None) -> str:
    items = [_member(value, attribute) for value in values]
    separator = str(d)
    charge(units(items) + len(separator) * len(items))
    return separator.join(map(str, items))


def _member(value: Any, attribute: str | None) -> object:
    return value if attribute is None else value[attribute]


def _replace(text: object, old: object, new: object, count: int | None = None) -> str:
    text = str(text)
    charge(_replace_cost(text, old, new))
    return text.replace(str(old), str(new), -1 if count is None else count)


def _indent(text: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Like jinja2's: all lines but the first, and no blank ones, unless asked."""
    if isinstance(width, int) and width > PADDING_MAX:
        raise SecurityError(f"indent width above {PADDING_MAX}")
    pad = width if isinstance(width, str) else " " * width
    lines = str(text).splitlines() or [""]
    charge(len(pad) * len(lines))
    padded = [pad + line if line or blank else line for line in lines[1:]]
    head = pad + lines[0] if first else lines[0]
    return "\n".join([head, *padded])


def _round(value: float, precision: int = 0) -> float:
    if not -PADDING_MAX <= precision <= PADDING_MAX:
        raise SecurityError("round precision out of range")
    return round(float(value), precision)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers gives it: real characters, nothing escaped for HTML."""
    if indent is not None and not 0 <= int(indent) <= 16:
        raise SecurityError("tojson indent out of range")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "tojson": _tojson,
}
