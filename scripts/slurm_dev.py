#!/usr/bin/env python3
"""Starts a real Slurm of several nodes on this machine, for the tests of `packer submit`.

    eval "$(scripts/slurm_dev.py up /tmp/slurm)"      # exports SLURM_CONF
    sbatch --wait job.sh; packer submit raw out.lmdb --tasks 8
    scripts/slurm_dev.py crash /tmp/slurm n2          # a node dies, and what runs on it
    scripts/slurm_dev.py up /tmp/slurm                # brings dead nodes back
    scripts/slurm_dev.py down /tmp/slurm              # stops everything, removes the folder

One slurmctld, one munged and a slurmd for each node listen on 127.0.0.1, without systemd and
cgroups, and keep everything in the one folder. Partition "main" is the default; jobs of partition
"urgent" preempt its jobs, which are requeued. Missing Debian packages are installed, where we are
root. What this machine lacks is said in one line, with exit status 3.

Slurm's own documentation says what the settings mean: slurm.conf(5), slurmd(8), munged(8).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "sinfo", "squeue", "unshare")
LACKING_STATUS = 3
SEARCHED = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
MARK = "SLURM_DEV_FOLDER"
WAIT_S = 90

CONF = """\
ClusterName=dev
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# How long a credential lasts is how long a requeued job waits before it starts again.
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny,DisableIPv6
SlurmctldPidFile={folder}/slurmctld.own.pid
SlurmdPidFile={folder}/slurmd.%n.own.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MinJobAge=3600
MaxArraySize=10001
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
KillWait=3
SlurmdTimeout=10
SlurmctldTimeout=10
ReturnToService=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=DEFAULT Nodes=ALL MaxTime=INFINITE DefaultTime=60 State=UP OverSubscribe=NO
PartitionName=main Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=urgent Default=NO PriorityTier=10 PreemptMode=OFF
"""


def lacking(text: str) -> SystemExit:
    """The end of this program because the machine does not allow what is asked for."""
    print(f"slurm_dev: {text}", file=sys.stderr)
    return SystemExit(LACKING_STATUS)


class Cluster:
    """The daemons of one folder.

    Args:
        folder: Where all they have is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.conf = self.folder / "slurm.conf"
        self._environment = {
            **os.environ,
            "PATH": SEARCHED,
            "SLURM_CONF": os.fspath(self.conf),
            MARK: os.fspath(self.folder),
        }

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes."""
        lines = self.conf.read_text().splitlines() if self.conf.exists() else []
        return [line.split()[0].split("=")[1] for line in lines if line.startswith("NodeName=")]

    def configure(self, *, count: int, cpus: int, port: int) -> None:
        """Write its configuration, for as many nodes and CPUs of each as that."""
        for name in ("log", "state", *(f"spool.n{n}" for n in range(1, count + 1))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        host = _host()[0]
        lines = [
            f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + n} CPUs={cpus} "
            "RealMemory=4096 State=UNKNOWN"
            for n in range(1, count + 1)
        ]
        user = self._output("id", "-un").strip()
        text = CONF.format(port=port, user=user, folder=self.folder, nodes="\n".join(lines))
        self.conf.write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(1024))

    def start(self) -> None:
        """Start what does not run."""
        socket_path = self.folder / "munge.sock"
        if not self._pids("munged"):
            self._start(
                "munged",
                *("munged", "--foreground", "--force", "--num-threads=2"),
                *(f"--key-file={self.folder}/munge.key", f"--socket={socket_path}"),
                *(f"--pid-file={self.folder}/munged.own.pid", f"--seed-file={self.folder}/seed"),
                f"--log-file={self.folder}/log/munged.log",
            )
            self._wait("munged", socket_path.exists)
        renamed = _host()[1]
        if not self._pids("slurmctld"):
            self._start("slurmctld", *renamed, "slurmctld", "-D", "-f", os.fspath(self.conf))
        for node in self.nodes:
            if not self._pids(node):
                self._start(node, *renamed, "slurmd", "-D", "-N", node, "-f", os.fspath(self.conf))
        self._wait("all nodes", self._are_nodes_up)

    def crash(self, node: str) -> None:
        """Have a node die, with everything that runs there. Slurm notices after some seconds."""
        for pid in self._pids(node):
            _kill(pid)
        for pid in self._marked():
            environment = _environment_of(pid)
            if environment.get("SLURMD_NODENAME") == node or f"[{node}]" in _command_of(pid):
                _kill(pid)

    def stop(self) -> None:
        """End every process of it, jobs among them; the folder stays."""
        if self._pids("slurmctld"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    ["scancel", "--full", "--state=RUNNING,PENDING,SUSPENDED"],
                    env=self._environment,
                    capture_output=True,
                    timeout=10,
                    check=False,
                )
        for sent, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0)):
            deadline = time.monotonic() + patience_s
            for pid in self._marked():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sent)
            while self._marked() and time.monotonic() < deadline:
                time.sleep(0.1)

    def _start(self, name: str, *command: str) -> None:
        with open(self.folder / "log" / f"{name}.out", "ab") as log:
            started = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / f"{name}.pid").write_text(str(started.pid))

    def _pids(self, name: str) -> list[int]:
        """The process of a daemon, if it lives and is ours."""
        try:
            pid = int((self.folder / f"{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return []
        return [pid] if pid in self._marked() else []

    def _marked(self) -> list[int]:
        """All processes that this cluster has started, jobs among them."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal()
            and _environment_of(int(entry.name)).get(MARK) == os.fspath(self.folder)
            and int(entry.name) != os.getpid()
        ]

    def _are_nodes_up(self) -> bool:
        states = self._output("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split()
        up = [state for state in states if state in ("idle", "mixed", "allocated")]
        return len(up) == len(self.nodes)

    def _output(self, *command: str) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                command,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=15,
                check=False,
            ).stdout
        return ""

    def _wait(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_there():
            if time.monotonic() > deadline:
                for log in sorted((self.folder / "log").iterdir()):
                    print(f"{log}: {log.read_text(errors='replace')[-1000:]}", file=sys.stderr)
                self.stop()
                raise lacking(f"{what} of Slurm did not come up within {WAIT_S} s: logs above")
            time.sleep(0.2)


def _host() -> tuple[str, list[str]]:
    """A name of this machine that is a loopback address, and what gives it to a daemon."""
    name = socket.gethostname().split(".")[0]
    with contextlib.suppress(OSError):
        if socket.gethostbyname(name).startswith("127."):
            return name, []
    if os.geteuid() != 0:
        raise lacking(f"the host name {name} is not 127.x, and only root may change that")
    return "localhost", ["unshare", "--uts", "sh", "-c", 'hostname localhost; exec "$@"', "sh"]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _environment_of(pid: int) -> dict[str, str]:
    try:
        parts = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(part).split("=", 1) for part in parts if b"=" in part)


def _command_of(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return ""


def install() -> None:
    """Have the programs of Slurm, from Debian's packages."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=SEARCHED) is None]
    if not missing:
        return
    program = Path(__file__).with_name("debian_packages.py")
    done = subprocess.run(
        [sys.executable, program, *PACKAGES], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise lacking(f"{', '.join(missing)} of Slurm are missing; {done.stdout.strip()}")


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["up", "crash", "down"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("node", nargs="?", help="for crash")
    parser.add_argument("--nodes", type=int, default=3, help="default: 3")
    parser.add_argument("--cpus", type=int, default=1, help="of each node; default: 1")
    parser.add_argument("--port", type=int, default=18817, help="the first; default: 18817")
    options = parser.parse_args()
    cluster = Cluster(options.folder)
    if options.action == "up":
        cluster.folder.mkdir(parents=True, exist_ok=True)
        install()
        if not cluster.conf.exists():
            cluster.configure(count=options.nodes, cpus=options.cpus, port=options.port)
        cluster.start()
        print(f"export SLURM_CONF={cluster.conf}")
    elif options.action == "crash":
        if options.node not in cluster.nodes:
            parser.error(f"node must be one of {', '.join(cluster.nodes)}; got {options.node!r}")
        cluster.crash(options.node)
    else:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
