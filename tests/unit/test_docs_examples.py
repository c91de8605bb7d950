"""What the docs show works: commands parse, Python runs, configuration loads, the site has all."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from rlconform._resources import resource_dir
from rlconform.certify.report.waivers import load_waivers
from rlconform.cli import app
from rlconform.contract import Target, missing_methods

ROOT = resource_dir("suites").parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, without their indentation."""
    found = FENCE.findall(page.read_text("utf-8"))
    return [
        re.sub(f"^{indent}", "", text, flags=re.M) for indent, of, text in found if of == language
    ]


def shown_commands() -> Iterator[Any]:
    """Every ``rlconform`` command that a page shows; a synopsis with ``[--option]`` is none."""
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"&&|\||;", line.partition(" #")[0]):
                    typed = re.search(r"(?:^|[\s/])rlconform (.*)", part)
                    if typed and "[--" not in part:
                        where = str(page.relative_to(ROOT))
                        yield pytest.param(shlex.split(typed[1]), id=f"{where}: {typed[1].strip()}")


@pytest.mark.parametrize("typed", list(shown_commands()))
def test_a_command_that_a_page_shows_is_one(typed: list[str]) -> None:
    command: Any = get_command(app)
    name, rest = "rlconform", [one for one in typed if not one.startswith((">", "2>"))]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"expected a command; got {rest[0]!r}"
        command, name, rest = command.commands[rest[0]], rest[0], rest[1:]
    known = {option for param in command.params for option in param.opts + param.secondary_opts}
    named = {one.partition("=")[0] for one in rest if re.match(r"--?[a-z]", one)}
    assert named - known - {"--help", "--install-completion", "--show-completion"} == set(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_a_page_are_what_they_say(page: Path) -> None:
    for text in blocks(page, "python"):
        compile(text, page.name, "exec")
    for text in blocks(page, "toml"):
        tomllib.loads(text)
    for text in blocks(page, "yaml"):
        assert yaml.safe_load(text)


def run(text: str, given: Mapping[str, Any] = types.MappingProxyType({})) -> dict[str, Any]:
    """Run a block and return its names."""
    names = {"__name__": "shown", **given}
    exec(compile(text, "page", "exec"), names)
    return names


@pytest.fixture
def nemo_style(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example plane of one process, which pages import."""
    monkeypatch.syspath_prepend(str(resource_dir("fixtures") / "planes"))
    monkeypatch.delitem(sys.modules, "nemo_style", raising=False)
    return importlib.import_module("nemo_style")


def test_the_target_of_the_quickstart_opens(
    nemo_style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("my_plane")
    attached: list[bool] = []

    def my_client(attach: bool) -> Any:
        attached.append(attach)
        return nemo_style.NemoStyleClient()

    vars(module)["MyClient"] = my_client
    monkeypatch.setitem(sys.modules, "my_plane", module)
    (text,) = blocks(DOCS / "quickstart.md", "python")
    target = run(text)["TARGET"]
    assert isinstance(target, Target)
    client = target.open({}, True)
    assert missing_methods(client) == []
    client.close()
    target.open({}, False).close()
    assert attached == [False, True]


@pytest.mark.usefixtures("nemo_style")
def test_the_targets_of_the_adapter_page_are_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    short, shared = blocks(DOCS / "adapter.md", "python")
    package = types.ModuleType("acme_rl.client")
    vars(package)["AcmeClient"] = object
    monkeypatch.setitem(sys.modules, "acme_rl", types.ModuleType("acme_rl"))
    monkeypatch.setitem(sys.modules, "acme_rl.client", package)
    assert run(short)["TARGET"].level == "functional"
    names = run(shared)
    assert names["TARGET"].level == "functional"
    assert names["AcmeClient"].__doc__


def test_the_waiver_file_is_accepted(tmp_path: Path) -> None:
    (text,) = blocks(DOCS / "waivers.md", "toml")
    (tmp_path / "waivers.toml").write_text(text)
    (waiver,) = load_waivers(tmp_path / "waivers.toml")
    assert waiver.id == "CLAIM-04"


class _SiteLoader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags only MkDocs resolves."""


_SiteLoader.add_multi_constructor("!", lambda *_: None)
_SiteLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def leaves(nav: Any) -> Iterator[str]:
    """The pages of a navigation."""
    for one in nav if isinstance(nav, list) else nav.values():
        if isinstance(one, str):
            yield one
        else:
            yield from leaves(one)


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    site = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _SiteLoader)
    listed = list(leaves(site["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def hooks() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "ci" / "site_hooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "text", "with_url", "without"),
    [
        ("requirements/get.md", "[`x`](../../suites/a)", "[`x`](URL/blob/main/suites/a)", "`x`"),
        ("certify.md", "[c](../CHANGES.md#how)", "[c](URL/blob/main/CHANGES.md#how)", "c"),
        ("findings/nemo_rl.md", "[g](../grpo.md)", "[g](../grpo.md)", "[g](../grpo.md)"),
        ("index.md", "[a](https://x.y)", "[a](https://x.y)", "[a](https://x.y)"),
        ("certify.md", "[s](#the-seal)", "[s](#the-seal)", "[s](#the-seal)"),
    ],
)  # fmt: skip
def test_links_out_of_the_docs_lead_to_the_repository(
    page: str, text: str, with_url: str, without: str
) -> None:
    assert hooks().rewrite(text, page, "https://URL/") == with_url.replace("URL", "https://URL")
    assert hooks().rewrite(text, page, "") == without
