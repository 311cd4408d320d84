"""Mutants of a source file: copies of it with one small mistake each.

The mistakes: comparisons (the boundary moved, the sense turned round), arithmetic (the opposite operator, a lost sign),
and/or/not, conditions, numbers (off by one; twice and half), `min` for `max` and their like, `None` for a returned
value, and a statement left out (a call, a raise, a change of something in place, `break`, `continue`). Text is left
alone: strings, messages of exceptions, annotations, docstrings and decorators.

A mutant's text replaces a part of the file and keeps all line numbers.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

_COMPARED = {
    "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
    "in": ("not in",), "not in": ("in",), "is": ("is not",), "is not": ("is",),
}  # fmt: skip
_COMPUTED = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
    "^": "&", "@": "*",
}  # fmt: skip
_CALLED = {
    "min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor", "minimum": "maximum",
    "maximum": "minimum", "bisect_left": "bisect_right", "bisect_right": "bisect_left",
}  # fmt: skip
_COMPARISON = re.compile(r"not\s+in\b|is\s+not\b|in\b|is\b|<=|>=|==|!=|<|>")
_ARITHMETIC = re.compile(r"\*\*|//|<<|>>|[-+*/%&|^@]")
_LOGIC = re.compile(r"\b(and|or)\b")
_AROUND = 50
_TEXT = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Assert, ast.MatchValue)


@dataclass(frozen=True)
class Mutant:
    """One mistake in a file: the bytes from `start` to `end` are replaced by `new`.

    `function` and `change`, which shows the code around it, name the mutant wherever its lines move to.
    """

    file: str
    function: str
    change: str
    start: int
    end: int
    new: str
    first_line: int
    last_line: int

    @property
    def name(self) -> str:
        """What identifies the mutant in the list of equivalent ones."""
        return f"{self.file} {self.function}: {self.change}"

    def applied(self, source: bytes) -> bytes:
        """Return the source with the mistake, in as many lines."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file that compile to something else, in their order in the file."""
    original = compile(source, file, "exec")
    seen: Counter[str] = Counter()
    found = []
    for mutant in _Reader(file, source).read():
        try:
            if compile(mutant.applied(source), file, "exec") == original:
                continue
        except SyntaxError:
            continue
        seen[mutant.name] += 1
        again = f" #{seen[mutant.name]}" if seen[mutant.name] > 1 else ""
        found.append(replace(mutant, change=mutant.change + again))
    return found


class _Reader:
    """Reads a file's syntax tree and finds what can be changed."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        lengths = [0, *map(len, source.splitlines(keepends=True))]
        self._begins = [sum(lengths[: number + 1]) for number in range(len(lengths))]

    def read(self) -> list[Mutant]:
        return sorted(self._visit(ast.parse(self._source), "module", None), key=lambda mutant: mutant.start)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """Return where the node's text begins and ends."""
        line, column, last, end = (getattr(node, name) for name in _PLACE)
        return self._begins[line - 1] + column, self._begins[last - 1] + end

    def _mutant(self, where: tuple[int, int], new: str, function: str, statement: ast.stmt) -> Mutant:
        """Return the mutant of that part of a statement, named by the text around the change."""
        start, end = where
        head, tail = self._header(statement)
        old = self._source[start:end].decode()
        kept = new.replace("\n", "").strip()
        before, after = (" ".join(part.decode().split()) for part in (self._source[head:start], self._source[end:tail]))
        change = f"{before[-_AROUND:]} «{' '.join(old.split())} → {kept}» {after[:_AROUND]}".strip()
        first, last = (self._source[:place].count(b"\n") + 1 for place in (head, tail))
        new += "\n" * (old.count("\n") - new.count("\n"))
        return Mutant(self._file, function, change, start, end, new, first, last)

    def _header(self, statement: ast.stmt) -> tuple[int, int]:
        """Return where a statement begins, and where it, or what stands above the block in it, ends."""
        start, end = self._span(statement)
        body = getattr(statement, "body", None) or getattr(statement, "cases", None)
        if not body:
            return start, end
        first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
        return start, max(start, self._source[: self._span(first)[0]].rfind(b"\n"))

    def _visit(self, node: ast.AST, function: str, statement: ast.stmt | None) -> Iterator[Mutant]:
        if isinstance(node, _TEXT) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            return
        if isinstance(node, ast.stmt):
            statement = node
        if statement is not None:
            for where, new in (*self._changes(node), *self._replacements(node)):
                yield self._mutant(where, new, function, statement)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = node.name if function == "module" else f"{function}.{node.name}"
        for child in _children(node):
            yield from self._visit(child, function, statement)

    def _changes(self, node: ast.AST) -> Iterator[tuple[tuple[int, int], str]]:
        """Return the operators, numbers and names in the node's own text that can be replaced, and by what."""
        match node:
            case ast.Compare(left=left, comparators=others):
                for before, after in pairwise([left, *others]):
                    where, sign = self._between(before, after, _COMPARISON)
                    yield from ((where, new) for new in _COMPARED[" ".join(sign.split())])
            case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right):
                where, sign = self._between(left, right, _ARITHMETIC)
                yield where, _COMPUTED[sign]
            case ast.BoolOp(values=values):
                for before, after in pairwise(values):
                    where, sign = self._between(before, after, _LOGIC)
                    yield where, "or" if sign == "and" else "and"
            case ast.UnaryOp(op=ast.Not() | ast.USub() as sign):
                start, _ = self._span(node)
                yield (start, start + (3 if isinstance(sign, ast.Not) else 1)), ""
            case ast.Constant(value=bool(value)):
                yield self._span(node), str(not value)
            case ast.Constant(value=int(value)):
                yield self._span(node), str(value + 1)
                yield self._span(node), f"({value - 1})" if value < 1 else str(value - 1)
            case ast.Constant(value=float(value)):
                yield from ((self._span(node), repr(new)) for new in (2 * value or 1.0, value / 2) if new != value)
            case ast.Call(func=ast.Name() | ast.Attribute() as called):
                name = called.id if isinstance(called, ast.Name) else called.attr
                if name in _CALLED:
                    _, end = self._span(called)
                    yield (end - len(name), end), _CALLED[name]

    def _replacements(self, node: ast.AST) -> Iterator[tuple[tuple[int, int], str]]:
        """Return conditions, returned values and statements that can be replaced, and by what."""
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self._negated(test)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield from self._negated(test)
            case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
                old = self._source[slice(*self._span(value))].count(b"\n")
                yield self._span(value), f"(None{chr(10) * old})" if old else "None"
        if _can_be_left_out(node):
            yield self._span(node), "pass"

    def _negated(self, test: ast.expr) -> Iterator[tuple[tuple[int, int], str]]:
        """Return the opposite of a condition that is no comparison."""
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.Constant) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            yield self._span(test), f"not ({self._source[slice(*self._span(test))].decode()})"

    def _between(self, before: ast.AST, after: ast.AST, sign: re.Pattern[str]) -> tuple[tuple[int, int], str]:
        """Return where an operator stands between two nodes, and which it is."""
        start, end = self._span(before)[1], self._span(after)[0]
        found = sign.search(self._source[start:end].decode())
        assert found is not None, self._source[start:end]  # noqa: S101 (the syntax tree says that one is there)
        return (start + found.start(), start + found.end()), found.group()


_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Return the parts of a node that do something: no annotations, decorators, docstrings or messages."""
    match node:
        case ast.Raise():
            return
        case ast.FunctionDef(args=arguments, body=body):
            yield from (default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None)
            yield from body
        case ast.ClassDef(body=body):
            yield from body
        case ast.AnnAssign(value=value):
            if value is not None and "TypeAlias" not in ast.dump(node.annotation):
                yield value
        case ast.Expr(value=ast.Constant()):
            return
        case _:
            yield from ast.iter_child_nodes(node)


def _can_be_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.AugAssign() | ast.Break() | ast.Continue() | ast.Delete():
            return True
        case ast.Expr(value=ast.Call()):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False
