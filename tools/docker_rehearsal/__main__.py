"""``python -m tools.docker_rehearsal``: start compose.yaml's services, run its DAGs, compare their targets.

``--keep-image`` takes the image of the last rehearsal, with the files of now.

Needs Linux, root (for namespaces), and the programs of PostgreSQL and Redis. The image is the Dockerfile's
steps, run at the very paths it has in a container; each service is a process with a network, a host name and
mounts of its own, as the user of the image, with nothing in its environment but what these two files say.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "mount", "initdb", "postgres", "redis-server")
_KEEP, _MAKE_IMAGE, _PLAY = "--keep-image", "--make-image", "--play"


def main() -> int:
    """Go into namespaces of our own; whatever is started there ends with them."""
    if _PLAY in sys.argv:
        from tools.docker_rehearsal.stage import play

        return play(ROOT)
    if _MAKE_IMAGE in sys.argv:
        from tools.docker_rehearsal.image import make_image

        # With this machine's network still; the services get one without a way out.
        return make_image(ROOT, again=_KEEP not in sys.argv) or _again("--net", step=_PLAY)
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_postgres_folders()])
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        why = f"{', '.join(missing)} missing" if missing else "it needs Linux and root"
        print(f"docker-rehearsal: SKIPPED: {why}", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    os.environ["PATH"] = path
    # At its end, it has to take along what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    (ROOT / ".cache").mkdir(exist_ok=True)
    with (ROOT / ".cache" / "docker-rehearsal.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        return _again("--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", step=_MAKE_IMAGE)


def _again(*namespaces: str, step: str) -> int:
    command = ["unshare", *namespaces, sys.executable, "-m", "tools.docker_rehearsal", step, *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _postgres_folders() -> list[str]:
    return sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)


if __name__ == "__main__":
    sys.exit(main())
