"""Renders a reproducer that needs nothing of rlconform, only the vendor's module.

It makes the calls of the failed check and compares one result. Where that can't show the failure (a
race, several processes, memory, a wait), there is no such script, and the other one runs the check.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence

from rlconform.certify.reproduce import plain
from rlconform.certify.reproduce.expectations import ScriptExpectation
from rlconform.certify.reproduce.render import MAX_LINES, Call, Origin, in_docstring
from rlconform.certify.reproduce.tensor_source import unpacked
from rlconform.certify.reproduce.verdict import split_evidence
from rlconform.certify.target import target_path
from rlconform.contract import load_requirements
from rlconform.wire import object_array

#: Seconds after which a script that hangs prints its stacks and exits with 1.
PATIENCE_S = 120

_HEADER = '''"""{id}: {sentence}

{evidence}

Why it matters: {why}

Run it where Python finds your adapter's module; it needs nothing of rlconform. Exit code 1, or a
crash: the defect is there; 0: it is gone; 2: earlier calls went otherwise than in the check
{check}
"""

import faulthandler
import sys
'''
_IMPORTS = {
    "os": "import os",
    "zlib": "import zlib",
    "base64": "import base64",
    "suppress": "from contextlib import suppress",
    "SimpleNamespace": "from types import SimpleNamespace",
    "np": "import numpy as np",
    "torch": "import torch",
}
_TENSORDICT = ("NonTensorData", "NonTensorStack", "TensorDict")

#: Names that scripts may use, with the source of each.
_HELPERS = {
    function.__name__: function
    for function in (
        *(one for one in vars(plain).values() if inspect.isfunction(one)),
        unpacked,
        object_array,
    )
}  # fmt: skip
#: A name in a script that only the other kind of script has.
_NOT_PLAIN = re.compile(r"\b(plane\.|tensorclass_like\(|expect_objects\()")


def plain_script(
    origin: Origin,
    evidence: str,
    calls: Sequence[Call],
    expected: ScriptExpectation | None,
    lost: bool = False,
) -> str:
    """Return the script, or "" if these calls alone can't show the failure.

    ``lost`` says that the last call did not return: it hung, or its process died.
    """
    if not all(_is_plain(call) for call in calls) or not 0 < len(calls) <= MAX_LINES:
        return ""
    body = [call.source.replace("KVBatchMeta(", "SimpleNamespace(") for call in calls]
    if expected is not None:
        numbers = [call.number for call in calls]
        if expected.number not in numbers:
            return ""
        body = [*body[: numbers.index(expected.number) + 1], *_judgement(expected, evidence, calls)]
    elif not lost:
        return ""
    body.append('end(0, "the defect is gone")')
    if any(_NOT_PLAIN.search(line) for line in body):
        return ""
    module, _, name = target_path(origin.spec).partition(":")
    first = name.partition(".")[0]
    cfg = repr(dict(origin.config)) if origin.config else 'getattr(target, "config", {})'
    opening = [
        f"faulthandler.dump_traceback_later({PATIENCE_S}, exit=True)  # exits with 1",
        f"target = {name}",
        f'client = getattr(target, "open", target)({cfg}, True)  # a Target, or a factory',
    ]
    helpers = list(_needed("\n".join(body)))
    text = "\n".join([*helpers, *opening, *body])
    requirement = load_requirements()[origin.requirement]
    head = _HEADER.format(
        id=origin.requirement,
        sentence=in_docstring(requirement.sentence),
        evidence=in_docstring(evidence),
        why=in_docstring(requirement.why),
        check=in_docstring(origin.check),
    )
    here = 'sys.path.insert(0, "")  # the folder in which it runs'
    imports = [*_imports(text), "", here, f"from {module} import {first}", ""]
    return head + "\n".join([*imports, *(f"\n{one}" for one in helpers), "", *opening, *body, ""])


def _is_plain(call: Call) -> bool:
    alone = call.who == "client" and not call.concurrent and not call.after_reopen
    return alone and bool(call.source) and not call.source.startswith("#")


def _judgement(expected: ScriptExpectation, evidence: str, calls: Sequence[Call]) -> Iterator[str]:
    """Yield the lines that compare a result with what the check expected."""
    claims = {call.number for call in calls if ".claim_meta(" in call.text}
    before = [call.number for call in calls if call.number < expected.number]
    returned = ", ".join(f"r{number}" for number in before if number not in expected.raised)
    raised = ", ".join(f"r{number}" for number in before if number in expected.raised)
    claimed = ", ".join(f"(r{n}, {ids!r})" for n, ids in expected.claimed.items() if n in claims)
    yield ""
    yield f"went_as_before([{returned}], [{raised}], [{claimed}])"
    result = f"r{expected.number}"
    if expected.source == f"plane.result_of({result})":
        yield f"expect_returned({result}, {split_evidence(evidence)[0]!r})"
    else:
        source = expected.source.replace(f"lambda: plane.result_of({result})", result)
        yield source.replace("KVBatchMeta(", "SimpleNamespace(")


def _needed(body: str) -> Iterator[str]:
    """Yield the source of the functions that the body uses, and of those that they use."""
    names: list[str] = []
    waiting = [body]
    while waiting:
        used = set(re.findall(r"\w+", waiting.pop()))
        for name in (one for one in _HELPERS if one in used and one not in names):
            names.append(name)
            waiting.append(_bare(_HELPERS[name]))
    yield from (_bare(_HELPERS[name]) for name in _HELPERS if name in names)


def _bare(function: object) -> str:
    """Return the function's source without annotations and comments, which scripts don't need."""
    assert inspect.isfunction(function)
    tree = ast.parse(inspect.getsource(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            arguments = node.args
            for argument in (
                *arguments.args,
                *arguments.kwonlyargs,
                arguments.vararg,
                arguments.kwarg,
            ):
                if argument is not None:
                    argument.annotation = None
    return ast.unparse(_without_annotations(tree)) + "\n"


def _without_annotations(tree: ast.Module) -> ast.Module:
    """Return the module with ``x: T = value`` written as ``x = value``."""

    class Plainer(ast.NodeTransformer):
        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
            assert node.value is not None
            return ast.copy_location(ast.Assign([node.target], node.value), node)

    return ast.fix_missing_locations(Plainer().visit(tree))  # type: ignore[no-any-return]


def _imports(text: str) -> Iterator[str]:
    used = set(re.findall(r"\w+", text))
    yield from (line for name, line in _IMPORTS.items() if name in used)
    if held := [name for name in _TENSORDICT if name in used]:
        yield f"from tensordict import {', '.join(held)}"
