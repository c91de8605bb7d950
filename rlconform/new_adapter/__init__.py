"""``rlconform new-adapter``: the package of an adapter that is to be written."""

from rlconform.new_adapter.package import NewAdapter, write_package

__all__ = ["NewAdapter", "write_package"]
