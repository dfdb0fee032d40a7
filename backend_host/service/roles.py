"""Who may ask the daemon for what: by the groups that the kernel says a peer has.

A daemon of root on a host with the group fairgv or fairgv-admin (`[users]` has their names) answers their members, and says to others which
group they lack. Elsewhere the socket's mode lets in who may come in, and the daemon's own user alone may change what others have.

Wrong when: somebody was put into a group, or out of it, a moment ago. A process keeps the groups that it was started with.
"""

import contextlib
import grp
import os
import pwd
from dataclasses import dataclass
from typing import Self

from backend_host.config import Config
from backend_host.errors import RefusedError
from backend_host.ipc import Session


@dataclass(frozen=True)
class Roles:
    """The groups as names, and as numbers where this host has them."""

    group: str
    admin_group: str
    gid: int | None = None
    admin_gid: int | None = None

    @classmethod
    def of_host(cls, config: Config) -> Self:
        """As they are now. A daemon that is not root's, or that serves one program, has none."""
        names = (config.users.group, config.users.admin_group)
        if os.geteuid() != 0 or config.is_private:
            return cls(*names)
        return cls(*names, *map(_gid, names))

    @property
    def are_on(self) -> bool:
        """Whether peers are told apart by groups."""
        return self.gid is not None or self.admin_gid is not None

    def is_limited(self, session: Session) -> bool:
        """Whether it may have vGPUs within the limits of `[users]` only."""
        return self.are_on and not self._is_owner(session) and self.admin_gid not in session.groups

    def check_member(self, session: Session) -> None:
        """RefusedError for a peer that may not even look."""
        if self.are_on and self.is_limited(session) and self.gid not in session.groups:
            raise RefusedError(
                f"{user_called(session.uid)} may not use this daemon: members of the group {self.group} may look and run programs, and those "
                f"of {self.admin_group} may change what others have. {self._remedy(self.group, session)}"
            )

    def check_admin(self, session: Session) -> None:
        """RefusedError for a peer that may not change what others have."""
        if self._is_owner(session):
            return
        if not self.are_on:
            raise RefusedError("only the daemon's own user may do this")
        if self.admin_gid not in session.groups:
            raise RefusedError(
                f"only members of the group {self.admin_group} may do this. {self._remedy(self.admin_group, session)}"
            )

    @staticmethod
    def _is_owner(session: Session) -> bool:
        return session.uid in (0, os.geteuid())

    @staticmethod
    def _remedy(group: str, session: Session) -> str:
        return f"Root adds one: usermod -aG {group} {user_called(session.uid)}; it holds from the next login on"


def user_called(uid: int) -> str:
    """The name of a user, or the number of one that the host does not know."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _gid(group: str) -> int | None:
    with contextlib.suppress(KeyError):
        return grp.getgrnam(group).gr_gid
    return None
