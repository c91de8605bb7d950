"""Starts Mooncake's master for one plane, and prepares a process to use that plane.

    owner ── start_master ──▶ sh (waits on a pipe from the owner) ──▶ mooncake_master on free ports
    every process ── join ──▶ its address, and environment variables of Mooncake's client

TransferQueue 0.1.11 can start a master too, but it kills every other master on the machine first,
uses fixed ports, waits three seconds whether or not the master answers, and leaves it running.
"""

from __future__ import annotations

import importlib
import os
import random
import re
import socket
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import psutil

from rlconform.contract import ConfigError, PlaneUnavailable

#: Debian's package for each system library that the wheel links to but does not contain.
_PACKAGES = {
    "libibverbs": "libibverbs1",
    "librdmacm": "librdmacm1",
    "libnuma": "libnuma1",
    "libcurl": "libcurl4",
    "libnl-3": "libnl-3-200",
    "libnl-route-3": "libnl-route-3-200",
    "libssl": "libssl3",
    "libcrypto": "libssl3",
    "liburing": "liburing2",
}
_LIBRARY = re.compile(r"(lib[\w.+-]+?\.so(?:\.\d+)*)")
_START_S = 15.0
_TRIES = 3

#: Kills the master when the owner closes the pipe or dies.
_GUARD = 'exec 3<&0; "$@" </dev/null & master=$!; read -r _ <&3; kill -9 $master; wait $master'


@dataclass
class MooncakeMaster:
    """A running Mooncake master, which Mooncake's clients need to find rows."""

    address: str  # ``host:port`` for Mooncake's clients
    guard: subprocess.Popen[bytes]  # the shell that kills the master when its owner ends

    @property
    def process(self) -> psutil.Process | None:
        """The master's own process; ``None`` once it has ended."""
        try:
            for child in psutil.Process(self.guard.pid).children():
                if child.status() != psutil.STATUS_ZOMBIE:
                    return child
        except psutil.NoSuchProcess:
            pass
        return None

    def stop(self) -> None:
        """Kill the master and wait until it has ended. Idempotent."""
        if self.guard.stdin is not None and not self.guard.stdin.closed:
            self.guard.stdin.close()
        self.guard.wait()


def start_master() -> MooncakeMaster:
    """Start a master; ``PlaneUnavailable`` with the end of its log if it does not answer."""
    program, host = _program(), own_address()
    for _ in range(_TRIES):  # another process may take a port after it was found free
        rpc, metrics = _free_ports(host, 2)
        with tempfile.TemporaryFile() as log:
            master = MooncakeMaster(
                f"{host}:{rpc}", _spawn(program, host, rpc, metrics, log.fileno())
            )
            if _answers(master):
                return master
            master.stop()
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines()
    raise PlaneUnavailable(f"Mooncake's master did not start: {' | '.join(lines[-3:])}")


def join() -> str:
    """Prepare this process for Mooncake's client; return this process's address.

    ``ConfigError``, which says what to install, if Mooncake or a system library is not installed.
    """
    _import_store()
    address = own_address()
    # Overwritten: a Ray actor inherits its driver's environment, with the driver's address.
    os.environ["MC_TCP_BIND_ADDRESS"] = address
    os.environ["MC_STORE_MEMCPY"] = "0"
    return address


def is_up(address: str, timeout_s: float = 1.0) -> bool:
    """Whether something accepts connections at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout_s).close()
    except OSError:
        return False
    return True


def own_address() -> str:
    """Return this host's routable address. Mooncake can't use a loopback or link-local one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only selects the interface
            found = [probe.getsockname()[0]]
        except OSError:
            found = []
    for addresses in psutil.net_if_addrs().values():
        found += [entry.address for entry in addresses if entry.family == socket.AF_INET]
    usable = [address for address in found if not address.startswith(("127.", "169.254.", "0."))]
    return str(usable[0]) if usable else "127.0.0.1"


def missing_libraries(linked: str) -> list[str]:
    """Return the names of the libraries that ``ldd`` reports as not found."""
    return [line.split()[0] for line in linked.splitlines() if "not found" in line]


def missing_library_sentence(libraries: list[str]) -> str:
    """Return a sentence with the missing libraries, each once, and the packages to install."""
    libraries = list(dict.fromkeys(libraries))
    packages = [
        package
        for library in libraries
        for stem, package in _PACKAGES.items()
        if library.startswith(f"{stem}.so")
    ]
    needed = f"Mooncake needs {', '.join(libraries)}, which this system lacks"
    if not packages:
        return needed
    return f"{needed}: apt-get install {' '.join(dict.fromkeys(packages))}"


def _import_store() -> ModuleType:
    try:
        return importlib.import_module("mooncake.store")
    except ModuleNotFoundError as error:
        raise ConfigError(
            'the Python package of Mooncake is not installed: pip install "rlconform[mooncake]"'
        ) from error
    except ImportError as error:
        named = _LIBRARY.search(str(error))
        if named is None:
            raise
        libraries = [named[1], *missing_libraries(_linked_libraries())]
        raise ConfigError(missing_library_sentence(libraries)) from error


def _folder() -> Path:
    package = importlib.import_module("mooncake")
    return Path(next(iter(package.__path__)))


def _linked_libraries() -> str:
    """Return the output of ``ldd`` for the wheel's programs, or an empty text without ``ldd``."""
    programs = [_folder() / name for name in ("store.so", "engine.so", "mooncake_master")]
    try:
        return subprocess.run(
            ["ldd", *programs], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        return ""


def _program() -> Path:
    _import_store()
    program = _folder() / "mooncake_master"
    if not os.access(program, os.X_OK):  # some installers drop the executable bit
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def _spawn(
    program: Path, host: str, rpc_port: int, metrics_port: int, log: int
) -> subprocess.Popen[bytes]:
    long = 999_999  # milliseconds; the maximum for default_kv_soft_pin_ttl
    command = [
        *(str(program), f"--rpc_address={host}", f"--rpc_port={rpc_port}"),
        *(f"--metrics_host={host}", f"--metrics_port={metrics_port}"),
        # Rows stay until they are cleared: nothing expires or is evicted.
        *("--client_ttl=30", f"--default_kv_lease_ttl={long}"),
        *(f"--default_kv_soft_pin_ttl={long}", "--allow_evict_soft_pinned_objects=false"),
        *("--eviction_high_watermark_ratio=1.0", "--eviction_ratio=0.0"),
    ]
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "mooncake-guard", *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _answers(master: MooncakeMaster) -> bool:
    deadline = time.monotonic() + _START_S
    seen = False
    while time.monotonic() < deadline:
        up, running = is_up(master.address), master.process is not None
        if up or (seen and not running):
            return running
        seen |= running
        time.sleep(0.02)
    return False


def _free_ports(host: str, count: int) -> list[int]:
    """Return free ports outside the range of the system's ephemeral ports."""
    ephemeral_from = 32768
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if limits.exists():
        ephemeral_from = int(limits.read_text().split()[0])
    candidates = range(10000, ephemeral_from) if ephemeral_from > 11000 else range(61000, 65536)
    ports: list[int] = []
    for port in random.sample(candidates, k=min(len(candidates), 500)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise PlaneUnavailable(f"no free port found on {host}")
