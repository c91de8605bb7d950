"""Renders a reproducer that needs nothing of rlconform, only the vendor's module.

It makes the calls of the failed check and compares one result. Where that can't show the failure (a
race, several processes, memory, a wait), there is no such script, and the other one runs the check.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from rlconform._python_source import parse
from rlconform.certify.reproduce.render import MAX_LINES, Call, Origin, in_docstring
from rlconform.certify.reproduce.verdict import split_evidence
from rlconform.certify.target import target_path
from rlconform.contract import load_requirements

if TYPE_CHECKING:
    from rlconform.certify.reproduce.expectations import ScriptExpectation

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

#: Modules with functions that scripts may use. They are read, not imported: they import torch.
_MODULES = (
    "certify/reproduce/plain.py",
    "certify/reproduce/tensor_source.py",
    "wire/object_columns.py",
)
#: Functions of the last two modules.
_OF_OTHERS = ("unpacked", "object_array")
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
    helpers = _needed("\n".join(body))
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


def _needed(body: str) -> list[str]:
    """Return the source of the functions that the body uses, and of those that they use."""
    helpers = _helpers()
    names: set[str] = set()
    waiting = [body]
    while waiting:
        used = set(re.findall(r"\w+", waiting.pop()))
        for name in used & helpers.keys() - names:
            names.add(name)
            waiting.append(helpers[name])
    return [source for name, source in helpers.items() if name in names]


@cache
def _helpers() -> Mapping[str, str]:
    """Return the source of each function that scripts may use, by name."""
    found = {}
    for module in _MODULES:
        tree = parse((resources.files("rlconform") / module).read_text("utf-8"))
        for node in tree.body:
            known = module.endswith("plain.py") or getattr(node, "name", "") in _OF_OTHERS
            if isinstance(node, ast.FunctionDef) and known:
                found[node.name] = ast.unparse(_Unannotated().visit(node)) + "\n"
    return found


class _Unannotated(ast.NodeTransformer):
    """Removes annotations, which would need more imports."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None  # no function here declares a name without a value
        made = ast.Assign([node.target], node.value)
        return ast.fix_missing_locations(ast.copy_location(made, node))


def _imports(text: str) -> Iterator[str]:
    used = set(re.findall(r"\w+", text))
    yield from (line for name, line in _IMPORTS.items() if name in used)
    if held := [name for name in _TENSORDICT if name in used]:
        yield f"from tensordict import {', '.join(held)}"
