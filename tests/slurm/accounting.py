"""SLURM's accounting on this machine: slurmdbd and its MariaDB, as children of a cluster, in the cluster's folder."""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm.programs import Programs
from tests.waiting import wait_until
from trainwarden.stack.binaries import default_folder
from trainwarden.stack.debian import unpack
from trainwarden.stack.ports import free_ports

if TYPE_CHECKING:
    from tests.slurm.cluster import Cluster, OwnCluster

# With what they need of SLURM and munge, for the reason that `tests.slurm.programs` has.
PACKAGES = (
    "libmunge2",
    "mariadb-server",
    "munge",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "slurmdbd",
)
CLIENTS = ("sacct", "sacctmgr")
_SQL = ("mysql_system_tables.sql", "mysql_system_tables_data.sql", "fill_help_tables.sql")
_CONFIGURATION = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
PluginDir={plugins}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""


def find_accounting_programs() -> Programs:
    """slurmdbd, MariaDB and their plugins, unpacked into the tools folder. Raises PackagesUnavailable."""
    return Programs(unpack(PACKAGES, default_folder() / "accounting"))


class Accounting:
    """MariaDB and slurmdbd of one cluster. Both listen on 127.0.0.1 alone."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._port, self._database_port = free_ports(2)

    def settings(self, folder: Path) -> Mapping[str, str]:
        """What slurm.conf needs, of a cluster in a folder."""
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(self._port),
            "AccountingStoragePass": f"{folder}/munge.sock",  # that is what it means with munge
        }

    def start(self, cluster: OwnCluster) -> None:
        """Start both, of which munged must listen, and register the cluster."""
        password = secrets.token_hex(16)
        self._start_database(cluster, password)
        configuration = cluster.folder / "slurmdbd.conf"
        configuration.touch(0o600)  # slurmdbd refuses one that others may read
        text = _CONFIGURATION.format(
            folder=cluster.folder,
            host=socket.gethostname().split(".")[0],
            port=self._port,
            user=pwd.getpwuid(os.getuid()).pw_name,
            plugins=self.programs.plugins,
            database_port=self._database_port,
            password=password,
        )
        configuration.write_text(text, encoding="utf-8")
        self.start_slurmdbd(cluster)

    def start_slurmdbd(self, cluster: OwnCluster) -> None:
        """Start slurmdbd alone, and wait until it answers and has the cluster."""
        cluster.spawn("slurmdbd", self.programs, "slurmdbd", "-D")
        wait_until(lambda: _registered(cluster), lambda: f"slurmdbd answers\n{cluster.logs()}")

    def _start_database(self, cluster: OwnCluster, password: str) -> None:
        data, files = cluster.folder / "database", self.programs.root / "usr/share/mysql"
        data.mkdir()
        options = [
            "--no-defaults",
            f"--datadir={data}",
            f"--user={pwd.getpwuid(os.getuid()).pw_name}",
            f"--lc-messages-dir={files}",
            f"--character-sets-dir={files}/charsets",
            f"--plugin-dir={data}",
            "--innodb-log-file-size=48M",
            "--innodb-flush-log-at-trx-commit=2",
        ]
        system = "".join((files / name).read_text(encoding="utf-8") for name in _SQL)
        bootstrap = [str(self.programs.path("mariadbd")), *options, "--bootstrap"]
        environment = cluster.environment | {"LD_LIBRARY_PATH": self.programs.libraries}
        done = subprocess.run(
            bootstrap,
            input=f"create database mysql;\nuse mysql;\n{system}".encode(),
            capture_output=True,
            env=environment,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"mariadbd --bootstrap: {done.stderr.decode(errors='replace')[-2000:]}")
        users = cluster.folder / "users.sql"
        users.touch(0o600)
        users.write_text(
            f"create user slurm@'127.0.0.1' identified by '{password}';\n"
            "grant all on slurm_acct_db.* to slurm@'127.0.0.1';\n",
            encoding="utf-8",
        )
        network = ["--bind-address=127.0.0.1", f"--port={self._database_port}", "--skip-name-resolve"]
        files_of = [f"--socket={cluster.folder}/db.sock", f"--pid-file={cluster.folder}/db.pid"]
        cluster.spawn("mariadbd", self.programs, "mariadbd", *options, *network, *files_of, f"--init-file={users}")
        wait_until(lambda: _listens(self._database_port), lambda: f"MariaDB listens\n{cluster.logs()}")


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def _registered(cluster: Cluster) -> bool:
    with suppress(RuntimeError):
        if "trainwarden" not in cluster.run(
            "sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster"
        ):
            cluster.run("sacctmgr", "--immediate", "add", "cluster", "trainwarden")
        return True
    return False
