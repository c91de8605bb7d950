"""Writes the package of a new adapter from the templates beside this module."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import rlconform
from rlconform.contract import ConfigError
from rlconform.new_adapter.owed import owed_methods

#: Templates by the path of the file that each becomes; ``{package}`` is the package's name.
FILES = {
    "pyproject.toml": "pyproject.toml.j2",
    "README.md": "README.md.j2",
    "plane.yaml": "plane.yaml.j2",
    "{package}/__init__.py": "package/__init__.py.j2",
    "{package}/client.py": "package/client.py.j2",
    "{package}/target.py": "package/target.py.j2",
    "tests/test_conformance.py": "tests/test_conformance.py.j2",
    ".github/workflows/conformance.yml": "workflows/conformance.yml.j2",
}


@dataclass(frozen=True)
class NewAdapter:
    """The names in the package, all made of the one that the user gives, such as ``acme-shm``.

    Raises:
        ConfigError: No Python package can have the name.
    """

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", self.name):
            raise ConfigError(
                f"expected a name of letters, digits, - and _, such as acme-shm; got {self.name!r}"
            )
        taken = {*sys.stdlib_module_names, *keyword.kwlist, *keyword.softkwlist}
        if self.package in taken or find_spec(self.package) is not None:
            raise ConfigError(
                f"Python has a module {self.package} already, which {self.name!r} would hide: "
                f"name the adapter otherwise, such as {self.name}-plane"
            )

    @property
    def package(self) -> str:
        """The name of the Python package."""
        return self.name.replace("-", "_").lower()

    @property
    def class_name(self) -> str:
        """The name of the client's class."""
        words = re.split(r"[-_]", self.name)
        return "".join(word[:1].upper() + word[1:] for word in words) + "Client"

    @property
    def target(self) -> str:
        """The target as ``rlconform certify`` takes it."""
        return f"{self.package}.target:TARGET"


def write_package(adapter: NewAdapter, folder: Path) -> list[Path]:
    """Write the files below ``folder``, which does not exist or is empty; return their paths.

    Raises:
        ConfigError: The folder holds something, or can't be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"expected a new or empty folder; got {folder}: name one with --out")
    values = {"adapter": adapter, "methods": owed_methods(), "version": rlconform.__version__}
    environment = _environment()
    written = []
    for path, template in FILES.items():
        text = environment.get_template(template).render(values)
        written.append(folder / path.format(package=adapter.package))
        try:
            written[-1].parent.mkdir(parents=True, exist_ok=True)
            written[-1].write_text(text, "utf-8")
        except OSError as error:
            raise ConfigError(
                f"{written[-1]}: {error.strerror}; name a folder with --out"
            ) from error
    return written


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("rlconform.new_adapter"),
        autoescape=False,  # source code, not a page
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
