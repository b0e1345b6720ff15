"""Run a PostgreSQL server: from the system's packages, in a temporary folder, gone when closed.

Its write-ahead log is kept for logical decoding. Clients are PostgreSQL's own programs; what they print is
read in the text form of ``COPY``, the one form in which NULL, quotes, tabs and line breaks all survive.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

#: A row as ``COPY`` writes it: text, or None for NULL.
Row = tuple[str | None, ...]

_HOST = "127.0.0.1"
_USER = "demo"
_DATABASE = "demo"
#: Who runs the server where we are root, as which PostgreSQL refuses to run.
_ACCOUNTS = ("postgres", "nobody")
_SETTINGS = {
    "listen_addresses": _HOST,
    "wal_level": "logical",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
    # The data is thrown away, whatever happens to the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "timezone": "UTC",
}


class PostgresMissing(RuntimeError):
    """PostgreSQL is not installed."""


class PostgresFailed(RuntimeError):
    """One of PostgreSQL's programs failed."""


def programs() -> Path:
    """Return the folder of PostgreSQL's programs, of the newest version that is installed.

    Distributions keep the server's programs out of the search path, and may put wrappers of the client's
    into it: their own folder comes first.

    :raises PostgresMissing: it is not installed
    """
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    found = shutil.which("initdb")
    named = [Path(found).resolve().parent] if found else []
    for folder in (*packaged, *named):
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "psql", "pgbench")):
            return folder
    raise PostgresMissing(
        "PostgreSQL is not installed: neither the search path nor /usr/lib/postgresql has initdb, pg_ctl, "
        "psql and pgbench. Install it, for instance with `apt-get install postgresql`; no server need run."
    )


def _version(folder: Path) -> tuple[bool, int]:
    name = folder.parent.name
    return (name.isdigit(), int(name) if name.isdigit() else 0)


class Postgres:
    """A server with one empty database; use it as a context manager.

    Reachable from this machine only, on a port of its own, with a password that is made up. The data
    directory is a new temporary folder. Attributes: ``host``, ``port``, ``user``, ``password``,
    ``database``.

    :param port: None takes a free one
    """

    def __init__(self, *, port: int | None = None) -> None:
        self.host, self.user, self.database = _HOST, _USER, _DATABASE
        self.port = port or _free_port()
        self.password = secrets.token_urlsafe(18)
        self._programs: Path | None = None
        self._folder: Path | None = None
        self._account = _account()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- life -----------------------------------------------------------------------------------
    def start(self) -> None:
        """Make the data directory and start the server; it answers when this returns.

        :raises PostgresMissing: if PostgreSQL is not installed
        :raises PostgresFailed: if the server does not start, with the end of its log
        """
        self._programs = programs()
        self._folder = Path(tempfile.mkdtemp(prefix="delta-cdc-postgres-"))
        secret = self._folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password + "\n")
        if self._account is not None:
            for path in (self._folder, secret):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        self._administer(
            "initdb",
            *("--pgdata", str(self._data), "--username", self.user, "--pwfile", str(secret)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
        )
        secret.unlink()
        settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": str(self._folder)}
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self._administer(
            "pg_ctl", "start", "--wait", "--pgdata", str(self._data), "--log", str(self._folder / "log")
        )
        self.run("createdb", self.database)

    def stop(self) -> None:
        """Stop the server, whoever is connected, and remove its folder."""
        if self._folder is None:
            return
        if (self._data / "postmaster.pid").exists():
            self._administer("pg_ctl", "stop", "--wait", "--mode", "immediate", "--pgdata", str(self._data))
        shutil.rmtree(self._folder)
        self._folder = None

    # -- use ------------------------------------------------------------------------------------
    def command(self, name: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the environment of one of PostgreSQL's clients."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
            # createdb connects to another one, and gets the name of the one to make.
            "PGDATABASE": "postgres" if name == "createdb" else self.database,
            "PGCLIENTENCODING": "UTF8",
        }
        return [self._program(name), *arguments], environment

    def run(self, name: str, *arguments: str, text: str | None = None) -> str:
        """Run a client to its end; return what it printed.

        :param text: its standard input
        :raises PostgresFailed: with what it complained of
        """
        command, environment = self.command(name, *arguments)
        # Bytes: Python would make one kind of line break of all of them, within values, too.
        given = None if text is None else text.encode()
        done = subprocess.run(command, env=environment, input=given, capture_output=True, check=False)
        said = done.stdout.decode()
        if done.returncode != 0:
            raise PostgresFailed(f"{name} failed: {done.stderr.decode().strip() or said.strip()}")
        return said

    def start_client(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a client, for instance a load that goes on for a while; its output is one pipe."""
        command, environment = self.command(name, *arguments)
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def execute(self, *statements: str) -> None:
        """Run SQL, every statement in a transaction of its own.

        :raises PostgresFailed: at the first that fails
        """
        for statement in statements:
            self.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", text=statement + ";\n")

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query, their values as text.

        :raises PostgresFailed: if it fails
        """
        copied = self.run(
            "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", f"COPY ({query}) TO STDOUT (ENCODING 'UTF8')"
        )
        return list(copied_rows(copied))

    def value(self, query: str) -> str:
        """Return the one value of a query."""
        ((value,),) = self.rows(query)
        assert value is not None, query
        return value

    # -- details --------------------------------------------------------------------------------
    @property
    def _data(self) -> Path:
        assert self._folder is not None, "not started"
        return self._folder / "data"

    def _program(self, name: str) -> str:
        assert self._programs is not None, "not started"
        return str(self._programs / name)

    def _administer(self, name: str, *arguments: str) -> None:
        """Run one of the server's own programs, as the server's account."""
        assert self._folder is not None, "not started"
        account = self._account
        # A file and no pipe: the server keeps it open as long as it lives.
        with (self._folder / "output").open("w+") as output:
            done = subprocess.run(
                [self._program(name), *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us: the server is stopped, it does not stop by itself.
                start_new_session=True,
                check=False,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
            )
            output.seek(0)
            said = output.read()
        if done.returncode != 0:
            log = self._folder / "log"
            raise PostgresFailed(f"{name} failed: {said}{log.read_text()[-2000:] if log.exists() else ''}")


def copied_rows(text: str) -> Iterator[Row]:
    """Read what ``COPY … TO STDOUT`` wrote in its text form."""
    # Not splitlines: it knows more line breaks than COPY escapes.
    for line in text.split("\n")[:-1]:
        yield tuple(copied_value(field) for field in line.split("\t"))


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def copied_value(field: str) -> str | None:
    r"""Return the value of one field in ``COPY``'s text form; ``\N`` is NULL."""
    if field == r"\N":
        return None
    first, *rest = field.split("\\")
    if not rest:
        return field
    return first + "".join(_unescaped(rest))


def _unescaped(parts: Sequence[str]) -> Iterable[str]:
    """Undo the escapes of a text that was split at its backslashes."""
    literal = False
    for part in parts:
        if literal:
            # The second of two backslashes: what follows it stands for itself.
            yield part
            literal = False
        elif part:
            yield _ESCAPES.get(part[0], part[0]) + part[1:]
        else:
            yield "\\"
            literal = True


def _account() -> pwd.struct_passwd | None:
    """Return the account under which the server runs; None is ours."""
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresFailed(
        "PostgreSQL does not run as root, and there is neither an account postgres nor nobody."
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
