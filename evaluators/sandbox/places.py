"""What a program finds where it starts, and what of the machine it cannot do without."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.sandbox.boxes import Box
from evaluators.sandbox.interpreter import Interpreter
from evaluators.sandbox.limits import Limits

# Of /etc only what programs cannot do without; the rest tells of the machine or is secret.
ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/ca-trust", "pki/tls/certs", "protocols", "services"),
)
ETC_OF_NETWORK = ("hosts", "nsswitch.conf", "resolv.conf")
TOPS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class Place:
    """What a program finds where it starts; `folder` is the agent's on this machine, "" for none.

    `user` is the user it is to run as, None for ourselves. `closed` names what it gives up where it has
    no view of its own: files, network.
    """

    box: Box
    python: Interpreter
    limits: Limits
    user: int | None = None
    folders: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    folder: str = ""
    has_network: bool = False
    closed: tuple[str, ...] = ()
