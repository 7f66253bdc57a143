"""Small expressions in study files: derived axes and filters. Read by a grammar of our own choosing, never run as Python.

"link_bytes_per_s > 8e9 and policy != 'lru'"        "min(4, ahead * 2)"        "'gate:ahead=' + text(ahead)"
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import UsageError, unknown_name

_LONGEST = 400  # characters: what a person writes into a study; longer is a mistake, and deep nesting costs the parser
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "round": round,
    "whole": int,
    "text": lambda value: f"{value:g}" if isinstance(value, float) else str(value),
    "starts": lambda value, beginning: str(value).startswith(beginning),
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


class Expression:
    """One expression over the values of a scenario. Made once, computed for each scenario."""

    def __init__(self, text: str, names: Iterable[str]) -> None:
        """Raises `UsageError` for what is no expression, and for a name that no axis or field has."""
        self.text, self._known = text, frozenset(names)
        if len(text) > _LONGEST:
            raise UsageError(f"the expression {text[:40]!r}… is longer than {_LONGEST} characters")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UsageError(f"{text!r} is no expression: {error}") from error
        self._check(self._tree)

    def value(self, values: Mapping[str, Any]) -> Any:
        """What it comes to. Raises `UsageError` naming the expression where its values do not fit together."""
        try:
            return self._compute(self._tree, values)
        except (TypeError, ValueError, ArithmeticError) as error:
            used = {name: values.get(name) for name in sorted(self._names())}
            raise UsageError(f"{self.text!r} cannot be computed with {used}: {error}") from error

    def _names(self) -> set[str]:
        return {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)} & self._known

    def _check(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return
            case ast.Name(id=name):
                if name not in self._known:
                    raise unknown_name(f"name in {self.text!r}", name, self._known)
                return
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                if name not in _FUNCTIONS:
                    raise unknown_name(f"function in {self.text!r}", name, _FUNCTIONS)
                parts: list[ast.expr] = arguments
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                parts = [left, right]
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in _COMPARISONS for op in ops
            ):
                parts = [left, *others]
            case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                pass
            case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
                parts = [operand]
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                parts = [test, body, otherwise]
            case _:
                raise UsageError(
                    f"{self.text!r}: {ast.unparse(node)!r} is not allowed; expressions know numbers, texts, lists, "
                    f"+ - * / // %, comparisons, and, or, not, in, if … else, and {', '.join(_FUNCTIONS)}"
                )
        for part in parts:
            self._check(part)

    def _compute(self, node: ast.AST, values: Mapping[str, Any]) -> Any:
        compute = self._compute
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return values.get(name)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _FUNCTIONS[name](*(compute(part, values) for part in arguments))
            case ast.BinOp(left=left, op=op, right=right):
                a, b = compute(left, values), compute(right, values)
                if not isinstance(op, ast.Add) and (isinstance(a, str) or isinstance(b, str)):
                    raise TypeError("texts can only be added")
                return _ARITHMETIC[type(op)](a, b)
            case ast.Compare(left=left, ops=ops, comparators=others):
                now = compute(left, values)
                for comparison, other in zip(ops, others, strict=True):
                    then = compute(other, values)
                    if not _COMPARISONS[type(comparison)](now, then):
                        return False
                    now = then
                return True
            case ast.BoolOp(op=both, values=parts):
                wanted = any if isinstance(both, ast.Or) else all
                return wanted(bool(compute(part, values)) for part in parts)
            case ast.UnaryOp(op=sign, operand=operand):
                return _SIGNS[type(sign)](compute(operand, values))
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return compute(body if compute(test, values) else otherwise, values)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [compute(part, values) for part in parts]
        raise RuntimeError(f"{self.text!r} passed the check and cannot be computed")
