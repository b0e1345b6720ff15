"""A service of the compose file as a process in namespaces of its own: network, host name, mounts."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.docker_check.places import environment_of, is_ours, stage_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.docker_check.places import Project

#: User and group of the base image.
USER = (50000, 0)

#: Network of the services; the first address is the rehearsal's own.
NETWORK = "10.83.0"
BRIDGE = "rehearsal"

#: What the image of PostgreSQL does at its first start, with the programs of this machine.
_POSTGRES = """
export PGDATA=/tmp/data
echo "$POSTGRES_PASSWORD" >/tmp/password
initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth-host scram-sha-256 --auth-local trust
echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
postgres -c listen_addresses= -c unix_socket_directories=/tmp &
until psql --host /tmp --username "$POSTGRES_USER" --dbname template1 --command 'SELECT 1'; do sleep 0.2; done
createdb --host /tmp --username "$POSTGRES_USER" "$POSTGRES_DB"
kill -INT $! && wait $!
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp
"""


@dataclass(frozen=True)
class World:
    """What all services share.

    :param project: the project
    :param folder: where everything is kept
    :param variables: values of the compose file's variables
    :param image: environment of the image, beside what the Dockerfile sets
    """

    project: Project
    folder: Path
    variables: Mapping[str, str]
    image: Mapping[str, str]

    def hosts(self, names: list[str]) -> dict[str, str]:
        """Return an address for each service."""
        return {name: f"{NETWORK}.{number}" for number, name in enumerate(names, 2)}


class Container:
    """One service.

    :param world: what it shares with the others
    :param name: its name, which is its host's name too
    :param service: what the compose file says about it
    :param address: its address
    """

    def __init__(self, world: World, name: str, service: Mapping[str, Any], address: str) -> None:
        self.world = world
        self.name = name
        self.service = service
        self.address = address
        self.ours = is_ours(service)
        self.folder = world.folder / "services" / name
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Return the file with all it says."""
        return self.folder / "log"

    # -- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the service, with its network."""
        for folder in ("tmp", "airflow"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        (self.folder / "tmp").chmod(0o1777)
        shutil.copytree("/opt/airflow", self.folder / "airflow", dirs_exist_ok=True)
        _own(self.folder / "airflow")
        script = self.folder / "start.sh"
        script.write_text(self._script(), encoding="utf-8")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["unshare", "--net", "--uts", "--mount", "sh", str(script)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._connect()
        assert self.process.stdin is not None
        # The script waits for this line, so that nothing starts without a network.
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def stop(self) -> None:
        """End all that the service has started, as Docker does: first politely."""
        if self.process is None or self.process.poll() is not None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(self.process.pid, how)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                continue
            return

    def ended(self) -> int | None:
        """Return the exit code, if it has ended."""
        return self.process.poll() if self.process else None

    def is_healthy(self) -> bool:
        """Run the service's own health check, inside."""
        kind, *test = self.service["healthcheck"]["test"]
        assert kind == "CMD", f"{self.name}: only CMD is rehearsed"
        return self.run(test) == 0

    def run(self, command: list[str]) -> int:
        """Run a command inside, as `docker exec` does; return its exit code."""
        assert self.process is not None
        inside = ["nsenter", "--target", str(self.process.pid), "--net", "--uts", "--mount"]
        with (self.folder / "health").open("ab") as log:
            return subprocess.run(
                [*inside, *self._as_user(), *command], stdout=log, stderr=log, env={}, check=False
            ).returncode

    # -- how --------------------------------------------------------------------------------------
    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of its processes, and nothing of this machine's."""
        own = environment_of(self.service)
        if not self.ours:
            return {"PATH": os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8", **own}
        image = self.world.project.environment(stage_of(self.service))
        path = image["PATH"].replace("${PATH}", self.world.image["PATH"])
        return {**self.world.image, **image, "PATH": path, **own}

    def _script(self) -> str:
        lines = ["set -eu", "read -r go", f"hostname {self.name}", "ip link set lo up"]
        for source, target in self._mounts():
            lines.append(f"mount --bind {shlex.quote(str(source))} {shlex.quote(target)}")
        lines.append(f"cd {'/opt/airflow' if self.ours else '/tmp'}")
        lines.append(f"exec {shlex.join([*self._as_user(), *self._command()])}")
        return "\n".join(lines) + "\n"

    def _mounts(self) -> list[tuple[Path, str]]:
        mounts = [(self.folder / "tmp", "/tmp"), (self.world.folder / "hosts", "/etc/hosts")]
        if not self.ours:
            return mounts
        mounts.append((self.folder / "airflow", "/opt/airflow"))
        for volume in self.service.get("volumes") or ():
            name, target = str(volume).split(":")[:2]
            kept = self.world.folder / "volumes" / name
            if not kept.exists():
                # Docker takes the owner from the image; where the image has no such folder, it is root's.
                kept.mkdir(parents=True)
                about = Path(target).stat()
                os.chown(kept, about.st_uid, about.st_gid)
            mounts.append((kept, target))
        return mounts

    def _command(self) -> list[str]:
        command = list(self.service.get("command") or ())
        if self.ours:
            return ["/opt/delta-cdc/bin/run", *command]
        if str(self.service["image"]).startswith("postgres:"):
            return ["sh", "-euc", _POSTGRES]
        # The image's own default; Debian's program asks for a password otherwise.
        return [*command, "--protected-mode", "no"]

    def _as_user(self) -> list[str]:
        user = f"--reuid={USER[0]}" if self.ours else "--reuid=nobody"
        group = f"--regid={USER[1]}" if self.ours else "--regid=nogroup"
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return ["setpriv", user, group, "--clear-groups", "env", "-i", *variables]

    def _connect(self) -> None:
        assert self.process is not None
        number = self.address.rpartition(".")[2]
        outside, inside = f"out{number}", f"in{number}"
        _ip(f"link add {outside} type veth peer name {inside}")
        _ip(f"link set {outside} master {BRIDGE} up")
        # `unshare` may not have made the network yet: only then is it another one than ours.
        _until_another_network(self.process.pid)
        _ip(f"link set {inside} netns {self.process.pid}")
        within = ["nsenter", "--target", str(self.process.pid), "--net", "ip"]
        for what in (f"addr add {self.address}/24 dev {inside}", f"link set {inside} up"):
            subprocess.run([*within, *what.split()], check=True)


def make_network() -> None:
    """Make the network that all services are in, and an address for the rehearsal itself."""
    _ip("link set lo up")
    _ip(f"link add {BRIDGE} type bridge")
    _ip(f"addr add {NETWORK}.1/24 dev {BRIDGE}")
    _ip(f"link set {BRIDGE} up")


def _own(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *USER, follow_symlinks=False)


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def _until_another_network(pid: int) -> None:
    ours = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{pid}/ns/net").readlink() == ours:
        os.sched_yield()
