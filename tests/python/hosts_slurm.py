"""Slurm itself on the hosts of a lab: its controller on the first, its daemon on each; nobody signs anything (auth/none)."""

from __future__ import annotations

import shutil
import time

from hosts_lab import Absent, Lab

CONFIG = """ClusterName=lab
SlurmctldHost=worker-0(10.77.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
StateSaveLocation={folder}/slurm.state
SlurmdSpoolDir={folder}/slurm.%n
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def with_slurm(lab: Lab, slots: int = 2) -> dict[str, str]:
    """Slurm, ready for jobs; returns the variables that its commands need."""
    daemons = [path for name in ("slurmctld", "slurmd") if (path := shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin"))]
    if len(daemons) < 2 or shutil.which("srun") is None:
        raise Absent("no Slurm here: install slurmctld, slurmd and slurm-client")
    nodes = "".join(f"NodeName={lab.name(host)} NodeAddr={lab.address(host)} CPUs={slots} State=UNKNOWN\n" for host in range(lab.count))
    config = lab.folder / "slurm.conf"
    config.write_text(CONFIG.format(folder=lab.folder) + nodes)
    (lab.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # which asks for nothing until it is used
    (lab.folder / "slurm.state").mkdir()
    variables = {"SLURM_CONF": str(config)}
    own = [lab.start(0, [daemons[0], "-D", "-i"], **variables)]
    for host in range(lab.count):
        (lab.folder / f"slurm.{lab.name(host)}").mkdir()
        own.append(lab.start(host, [daemons[1], "-D", "-N", lab.name(host)], **variables))
    deadline = time.monotonic() + 60
    while (said := lab.do(0, f"SLURM_CONF={config} sinfo -h -o %D/%T 2>&1 || true").split()) != [f"{lab.count}/idle"]:
        if time.monotonic() > deadline or any(daemon.process.poll() is not None for daemon in own):
            raise AssertionError(f"Slurm does not come up ({said}):\n" + "\n".join(daemon.output()[-1500:] for daemon in own))
        time.sleep(0.2)
    return variables
