"""Signs ``report.json`` with an ed25519 key, and checks the signature.

The signature is that of the file's bytes, in base64, so that openssl can check it as well::

    openssl genpkey -algorithm ed25519 -out key.pem
    openssl pkey -in key.pem -pubout -out key.pub
    base64 -d report.json.sig > raw.sig
    openssl pkeyutl -verify -rawin -pubin -inkey key.pub -in report.json -sigfile raw.sig
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlconform.contract import ConfigError

SIGNATURE = "report.json.sig"

#: Returns the signature of some data as one line of base64.
Signer = Callable[[bytes], str]
#: Whether a signature, in base64, is that of the data.
Verifier = Callable[[bytes, str], bool]


def signer(path: Path) -> Signer:
    """Read a private ed25519 key (PEM or OpenSSH, without a password); raise ``ConfigError``."""
    ed25519, loaders = _cryptography()
    data = _read(path)
    load = loaders.load_ssh_private_key if b"OPENSSH" in data else loaders.load_pem_private_key
    key = _loaded(path, lambda: load(data, None))
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigError(f"{path}: expected a private ed25519 key; got {type(key).__name__}")
    return lambda signed: b64encode(key.sign(signed)).decode() + "\n"


def verifier(path: Path) -> Verifier:
    """Read a public ed25519 key (PEM or OpenSSH); raise ``ConfigError``."""
    ed25519, loaders = _cryptography()
    data = _read(path)
    is_ssh = data.startswith(b"ssh-")
    load = loaders.load_ssh_public_key if is_ssh else loaders.load_pem_public_key
    key = _loaded(path, lambda: load(data))
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ConfigError(f"{path}: expected a public ed25519 key; got {type(key).__name__}")

    def verify(signed: bytes, signature: str) -> bool:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

        try:
            key.verify(b64decode(signature), signed)
        except (InvalidSignature, ValueError):  # or no base64
            return False
        return True

    return verify


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name the file of an ed25519 key") from error


def _loaded(path: Path, load: Callable[[], Any]) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415

    try:
        return load()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{path}: expected an ed25519 key as PEM or OpenSSH, without a password; "
            f"`openssl genpkey -algorithm ed25519` makes one"
        ) from error


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError('signatures need cryptography: pip install "rlconform[sign]"') from error
    return ed25519, serialization
