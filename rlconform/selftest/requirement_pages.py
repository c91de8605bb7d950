"""Generates pages of the docs: requirements, one page per section; mutants; trainer's defects.

``python -m rlconform.selftest.requirement_pages docs`` writes them; a test checks that they are
current. Each requirement has its sentence, field failures, checks and mutants, with links.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlconform.contract import load_requirements
from rlconform.mutants.async_parts.registry import all_part_defects
from rlconform.mutants.async_trainer.registry import all_trainer_defects
from rlconform.mutants.registry import all_mutants
from rlconform.mutants.router_replay.registry import all_replay_defects
from rlconform.selftest.evidence import Evidence, MutantSource, evidence_by_section
from rlconform.selftest.kill_matrix import matrix_of, render_markdown
from rlconform.selftest.part_trials import MOST_PLANS
from rlconform.selftest.parts import PART_RULES, PARTS
from rlconform.selftest.rule_matrix import render_rule_matrix

#: Title of each section.
SECTIONS = {
    "REG": "register_partition",
    "PUT": "put_samples",
    "GET": "get_samples and get_data",
    "TAG": "tags and lengths",
    "CLAIM": "claim_meta",
    "STAT": "check_consumption_status",
    "CLEAR": "clear_samples",
    "LIFE": "opening, closing, threads and malformed calls",
    "WIRE": "padded, jagged and object columns",
    "SHARD": "sharding for data-parallel ranks and packing",
    "PAR": "the in-memory path against the plane, byte by byte",
    "FLOW": "rollouts and training at the same time",
    "ASYNC": "whole groups by their ids, in one partition that is never empty",
    "R3": "router replay: the experts of each token",
    "RANK": "what the ranks of a replica owe each other",
    "FAULT": "crashes, pauses and restarts",
    "LOAD": "load and size",
}

_ABOUT_DEFECTS = """# Defects of the trainer by rule

Generated from `rlconform/mutants` by `nox -s docs`. Each defect is a small subclass of a class of
the asynchronous trainer or of one of its parts. `rlconform self-test --check-run` tries each, and
holds these tables: x is a rule that must find the defect, for the reason that the defect declares
and with a proof of ten records at most; (x) is a rule that may find its consequences. No other rule
finds anything.

## In the log of a run

The self-test runs the trainer with each defect of `rlconform/mutants/async_trainer`, and judges the
events that the run writes with `check-run`. [Judge a run from its
events](check_run.md#the-power-of-the-rules) says what is simulated.

Defects under `check_r3` are those of `rlconform/mutants/router_replay`: a training step with
[router replay](router_replay.md) runs with each, and `check-r3` judges its trace.

"""

_ABOUT_PARTS = """
## In the history of a part

The batching executor, the trajectory queue and the rewards of rows do more than the log of a run
says. Each has a judge: a pure function over a recorded history of calls, their times and answers
(`rlconform/grpo/rewards/executor_history.py`, `grpo/queue/queue_judge.py`,
`grpo/rewards/row_history.py`). The self-test lets up to {plans} drawn plans of arrivals,
cancellations, errors and deaths happen to the part with each defect of
`rlconform/mutants/async_parts`, and to the right part, in which no rule may find anything.

| Rule | What it holds |
| --- | --- |
{rules}

"""

#: Path from a page of ``docs/requirements`` to the root of the checkout.
_ROOT = "../.."


def pages() -> Mapping[str, str]:
    """Return the Markdown of every page by file name, including the index ``README.md``."""
    sections = evidence_by_section()
    rendered = {f"{section.lower()}.md": _page(section, rows) for section, rows in sections.items()}
    return {"README.md": _index(sections), **rendered}


def _index(sections: Mapping[str, tuple[Evidence, ...]]) -> str:
    lines = [
        "# Requirements",
        "",
        "Generated from `rlconform/contract/requirements.toml`, the checks and the mutants by "
        "`nox -s docs`. Each requirement has its sentence, the reason, field failures, checks and "
        "mutants. `rlconform explain ID` prints the same. A mutant is named after its class in "
        "snake case: `get_drops_rows` is the class `GetDropsRows`.",
        "",
    ]
    for section, rows in sections.items():
        lines += [
            f"## [{section}]({section.lower()}.md): {SECTIONS[section]}",
            "",
            "| Requirement | Strength | Title | Checks | Mutants |",
            "| --- | --- | --- | --- | --- |",
            *(_index_row(section, row) for row in rows),
            "",
        ]
    return "\n".join(lines)


def _index_row(section: str, evidence: Evidence) -> str:
    row = evidence.requirement
    link = f"[{row.id}]({section.lower()}.md#{row.id.lower()})"
    counts = f"{len(evidence.checks)} | {len(evidence.mutants)}"
    return f"| {link} | {row.level} | {row.title} | {counts} |"


def _page(section: str, rows: tuple[Evidence, ...]) -> str:
    lines = [f"# {section}: {SECTIONS[section]}", ""]
    for evidence in rows:
        lines += _requirement(evidence)
    return "\n".join(lines)


def _requirement(evidence: Evidence) -> list[str]:
    row = evidence.requirement
    applies = (
        f"planes that declare {' or '.join(row.capability)}" if row.capability else "all planes"
    )
    if row.scope == "kit":
        applies = "rlconform itself; no plane can break it"
    lines = [
        f"## {row.id}",
        "",
        f"**{row.title}.** {row.level}, from level {row.profile}, since {row.since}; {applies}.",
        "",
        f"> {row.sentence}",
        "",
        f"Why: {row.why}",
        "",
    ]
    incidents = [f"- {one.system} ({one.id}): {one.what}" for one in evidence.incidents]
    lines += _listed("Seen in the field:", incidents)
    if not evidence.checks:
        lines += [f"No check: {row.unchecked}", ""]
    lines += _listed("Checks:", map(_check, evidence.checks))
    lines += _listed("Mutants that its checks must kill:", map(_mutant, evidence.mutants))
    if evidence.why_no_mutant:
        lines += [f"No mutant: {evidence.why_no_mutant}", ""]
    elif row.excluded:
        lines += [f"No mutant is killed by it alone: {row.excluded}", ""]
    return lines


def _listed(heading: str, items: Iterable[str]) -> list[str]:
    """Return a Markdown list with its heading; no lines if there are no items."""
    listed = list(items)
    return [heading, "", *listed, ""] if listed else []


def _check(name: str) -> str:
    path, _, function = name.partition("::")
    return f"- [`{function}`]({_ROOT}/{path}) in `{path}`"


def _mutant(mutant: MutantSource) -> str:
    alone = "" if mutant.alone else " (with other requirements)"
    return f"- [`{mutant.name}`]({_ROOT}/{mutant.file}){alone}: {mutant.defect}"


def write_pages(folder: Path) -> None:
    """Write all pages into ``folder``, and remove pages of deleted sections."""
    folder.mkdir(parents=True, exist_ok=True)
    rendered = pages()
    for old in folder.glob("*.md"):
        if old.name not in rendered:
            old.unlink()
    for name, text in rendered.items():
        (folder / name).write_text(text, "utf-8")


def renew_matrix(page: Path) -> None:
    """Replace the table at the end of ``docs/mutants.md`` by one of the declared mutants."""
    mutants = {name: mutant for name, (_, mutant) in all_mutants().items()}
    text, marker, _ = page.read_text("utf-8").partition("\n\n| Requirement |")
    assert marker, f"expected a table of requirements in {page}"
    page.write_text(
        f"{text}\n\n{render_markdown(matrix_of(load_requirements(), mutants))}", "utf-8"
    )


def trainer_defects_page() -> str:
    """Return the page of the defects of the trainer and its parts, and of what must find each."""
    rules = "\n".join(
        f"| {rule} | {holds} |" for part in PARTS for rule, holds in part.rules.items()
    )
    return (
        _ABOUT_DEFECTS
        + render_rule_matrix({**all_trainer_defects(), **all_replay_defects()})
        + _ABOUT_PARTS.format(plans=MOST_PLANS, rules=rules)
        + render_rule_matrix(all_part_defects(), PART_RULES)
    )


if __name__ == "__main__":
    docs = Path(sys.argv[1])
    write_pages(docs / "requirements")
    renew_matrix(docs / "mutants.md")
    (docs / "trainer_defects.md").write_text(trainer_defects_page(), "utf-8")
