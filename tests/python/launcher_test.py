"""The `deepspeed` command: hosts and slots, what is refused, and ranks that start."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from ranks import free_port, main

HERE = "this-host"
socket.gethostname = lambda: HERE  # whatever the machine is called
FILE = f"# two hosts\nworker-0 slots=4\n\n{HERE} slots=2 # this one\n"


def refused(arguments: list[str]) -> str:
    """What the command says when it refuses."""
    from deepspeed.launcher import runner

    try:
        runner.torchrun_arguments(runner.parse([*arguments, "script.py"]))
    except SystemExit as error:
        return str(error)
    raise AssertionError(f"{arguments} was accepted")


def torchrun(arguments: list[str]) -> list[str]:
    from deepspeed.launcher import runner

    return runner.torchrun_arguments(runner.parse([*arguments, "script.py", "--mine"]))


def hostfile(folder: str) -> str:
    path = Path(folder, "hostfile")
    path.write_text(FILE)
    return str(path)


def test_a_script_that_is_not_there_is_named():
    from deepspeed.launcher import runner

    for script in ("nowhere.py", os.path.dirname(__file__)):
        try:
            runner.main([script])
        except SystemExit as error:
            assert str(error) == f"deepspeed: there is no script {script}. Give the path of a file.", error
        else:
            raise AssertionError(f"{script} was accepted")


def test_hostfiles_are_parsed_and_faults_named_by_line():
    from deepspeed.launcher import hosts

    assert hosts.parse_hostfile(FILE.splitlines()) == {"worker-0": [0, 1, 2, 3], HERE: [0, 1]}
    for lines, word in ((["a slots=2", "a slots=2"], ":2"), (["a"], "slots=4"), (["a slots=x"], ":1"), (["a slots=1 b"], ":1"),
                        (["a slots=1", "b slots=²"], ":2"), (["a slots=0"], ":1"), (["a slots=1025"], ":1 gives a more than 1024"),
                        (["a slots=99999999999999"], ":1"), (["a slots=" + "9" * 5000], ":1"),
                        (["a slots=1", "-oProxyCommand=x slots=1"], "hostfile:2 names a host -oProxyCommand=x, which begins with -")):  # fmt: skip
        try:
            hosts.parse_hostfile(lines)
        except SystemExit as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{lines} was accepted")


def test_include_and_exclude_choose_slots():
    from deepspeed.launcher.hosts import select

    pool = {"a": [0, 1, 2], "b": [0, 1]}
    assert select(pool, "", "") == pool
    assert select(pool, "b", "") == {"b": [0, 1]}
    assert select(pool, "a:2,0@b:1", "") == {"a": [0, 2], "b": [1]}
    assert select(pool, "", "a") == {"b": [0, 1]}
    assert select(pool, "", "a:1@b:0") == {"a": [0, 2], "b": [1]}
    for include, exclude, word in (("a", "b", "contradict"), ("c", "", "c is not"), ("a:7", "", "slot 7"),
                                   ("", "a@b", "no slot"), ("a:x", "", "a:x"), ("a:²", "", "a:²"),
                                   ("a:" + "9" * 5000, "", "which slots"), ("-oProxyCommand=x", "", "begins with -"),
                                   ("", "b@-F:1", "'b@-F:1' names a host -F")):  # fmt: skip
        try:
            select(pool, include, exclude)
        except SystemExit as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{include} {exclude} was accepted")


def test_arguments_become_those_of_torchrun():
    wrapper = str(Path(__import__("deepspeed").__file__).parent / "launcher" / "with_local_rank.py")
    assert torchrun(["--num_gpus", "3", "--master_port", "1234"]) == [
        "--nproc_per_node=3", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=1234",
        wrapper, "script.py", "--mine",
    ]  # fmt: skip
    several = ["--num_gpus", "2", "--num_nodes", "2", "--no_ssh", "--node_rank", "1", "--master_addr", "worker-0"]
    assert torchrun(several)[:5] == [
        "--nproc_per_node=2", "--nnodes=2", "--node_rank=1", "--master_addr=worker-0", "--master_port=29500",
    ]  # fmt: skip
    assert torchrun(["--module"])[-4:] == [wrapper, "-m", "script.py", "--mine"]
    assert torchrun(["--module", "--no_local_rank"])[-3:] == ["--module", "script.py", "--mine"]
    assert torchrun(["--no_python"])[-3:] == ["--no_python", "script.py", "--mine"]
    assert torchrun(["--enable_each_rank_log", "logs"])[5:7] == ["--log_dir=logs", "--redirects=3"]


def test_a_hostfile_gives_hosts_and_this_hosts_number():
    from deepspeed.launcher import runner

    with tempfile.TemporaryDirectory() as folder:
        path = hostfile(folder)
        assert torchrun(["-H", path, "--no_ssh"])[:4] == [
            "--nproc_per_node=2", "--nnodes=2", "--node_rank=1", "--master_addr=worker-0",
        ]  # fmt: skip
        assert torchrun(["-H", path, "--no_ssh", "--node_rank", "0"])[:1] == ["--nproc_per_node=4"]
        assert torchrun(["-H", path, "--include", f"{HERE}:1"])[:4] == [
            "--nproc_per_node=1", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
        ]  # fmt: skip
        assert torchrun(["-H", path, "--num_nodes", "2", "--num_gpus", "1", "--no_ssh"])[:2] == [
            "--nproc_per_node=1", "--nnodes=2",
        ]  # fmt: skip
        assert "contradict" in refused(["-H", path, "--include", HERE, "--num_gpus", "1"])
        assert "has 2" in refused(["-H", path, "--num_nodes", "3", "--no_ssh"])
        for arguments, names in (([], ["worker-0", HERE]), (["--include", "worker-0"], ["worker-0"]), (["--include", HERE], None),
                                 (["--include", HERE, "--force_multi"], [HERE]), (["--no_ssh"], None), (["--num_nodes", "1"], ["worker-0"]),
                                 (["--exclude", "worker-0"], None), (["--launcher", "torchrun"], None)):  # fmt: skip
            chosen = runner.hosts_to_start(runner.parse(["-H", path, *arguments, "script.py"]))
            assert (chosen and list(chosen)) == names, (arguments, chosen)
        assert "is not there" in refused(["-H", path + ".not"])
        # A script that starts it on each host would start every rank once a host.
        try:
            runner.hosts_to_start(runner.parse(["-H", path, "--node_rank", "0", "script.py"]))
        except SystemExit as error:
            assert "starts all 2 hosts. Add --no_ssh" in str(error), error
        else:
            raise AssertionError("--node_rank was accepted")


def test_a_hostfile_that_is_no_text_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hostfile")
        path.write_bytes(b"worker-0 slots=2\xff\xfe")
        assert "cannot be read" in refused(["-H", str(path)])


def test_without_an_ssh_client_the_command_says_so():
    from deepspeed.launcher import runner

    with tempfile.TemporaryDirectory() as folder:
        options = runner.parse(["-H", hostfile(folder), "script.py"])
        chosen, before = runner.hosts_to_start(options), os.environ["PATH"]
        os.environ["PATH"] = folder
        try:
            runner.start_on_hosts(options, chosen)
        except SystemExit as error:
            assert "by ssh, which is not in PATH" in str(error) and "--no_ssh" in str(error), error
        else:
            raise AssertionError("it started")
        finally:
            os.environ["PATH"] = before


def test_numbers_that_cannot_be_are_refused():
    assert "--master_port is 0" in refused(["--master_port", "0"])
    assert "65535" in refused(["--master_port", "65536"])
    assert "--num_gpus is 100000" in refused(["--num_gpus", "100000"])
    for name in ("num_gpus", "num_nodes"):
        for number in ("0", "-2", "-3"):
            assert f"--{name} is {number}. Give a number from 1, or leave it out" in refused([f"--{name}={number}"])
    assert torchrun(["--num_gpus=-1", "--num_nodes=-1"])[:2] == ["--nproc_per_node=1", "--nnodes=1"]
    for cores in ("²", "0-99999999999", "3-1", "9" * 5000):
        assert "--bind_core_list" in refused(["--bind_core_list", cores])


def busy_port() -> socket.socket:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken


def test_a_default_port_that_is_taken_is_replaced_and_a_named_one_is_refused():
    from deepspeed.launcher import port

    with busy_port() as taken:
        number = taken.getsockname()[1]
        assert refused(["--master_port", str(number)]) == (
            f"deepspeed: --master_port {number} is in use on this host. Give a free one with --master_port, or end who uses it."
        )
        before, port.DEFAULT_PORT = port.DEFAULT_PORT, number
        try:
            chosen = torchrun(["--num_gpus", "2"])[4]
            assert chosen.startswith("--master_port=") and chosen != f"--master_port={number}", chosen
            several = ["--num_gpus", "2", "--num_nodes", "2", "--no_ssh", "--node_rank", "0", "--master_addr", "worker-0"]
            assert f"the default port {number} is in use" in refused(several) and "on every host" in refused(several)
        finally:
            port.DEFAULT_PORT = before


def test_the_command_of_a_checkout_starts_ranks_beside_one_that_runs():
    """python/bin/deepspeed, with the default port taken by another run."""
    script = "import os; os.write(1, f\"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n\".encode())"
    with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("0.0.0.0", 29500))
            taken.listen()
        except OSError:
            pass  # it is taken already
        Path(folder, "mine.py").write_text(script)
        command = Path(__file__).parents[2] / "python" / "bin" / "deepspeed"
        done = subprocess.run(
            [sys.executable, str(command), "--num_gpus", "2", "mine.py"], cwd=folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "rank 0 of 2" in done.stdout and "rank 1 of 2" in done.stdout, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr


def test_what_launchers_say_of_this_host_is_read():
    from shoal import Error
    from shoal.world import local_size, number_of

    names = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NODEID")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}

    def read(**given: str) -> int:
        os.environ.update(given)
        try:
            return local_size()
        finally:
            for name in given:
                del os.environ[name]

    try:
        assert read() == 1
        assert read(LOCAL_WORLD_SIZE="3", SLURM_TASKS_PER_NODE="2,1") == 3
        assert [read(SLURM_TASKS_PER_NODE="2(x3),1", SLURM_NODEID=node) for node in "0123"] == [2, 2, 2, 1]
        assert [read(SLURM_TASKS_PER_NODE="2,1", SLURM_NODEID=node) for node in "01"] == [2, 1]
        assert read(SLURM_TASKS_PER_NODE="2,1") == 2 and read(SLURM_STEP_TASKS_PER_NODE="1", SLURM_TASKS_PER_NODE="4") == 1
        for wrong in ("x", "2,", "2(x", "0", "²", "2(x0)"):
            try:
                read(SLURM_TASKS_PER_NODE=wrong)
            except Error as error:
                assert "[environment SLURM_TASKS_PER_NODE]" in str(error) and "2(x3),1" in str(error), error
            else:
                raise AssertionError(f"{wrong} was accepted")
        os.environ["SLURM_NODEID"] = "x"
        try:
            number_of("SLURM_NODEID", 0)
        except Error as error:
            assert str(error) == "[environment SLURM_NODEID] 'x' is not a number from 0. Correct it.", error
        else:
            raise AssertionError("x was accepted")
    finally:
        os.environ.pop("SLURM_NODEID", None)
        os.environ.update(before)


def test_the_first_host_of_slurms_lists_is_where_ranks_of_srun_meet():
    from deepspeed import comm
    from shoal.world import first_host

    for nodelist, host in (("a", "a"), ("a,b", "a"), ("node[003-005,7],gpu1", "node003"), ("n[1,3]-x,y", "n1-x"), ("rack[2]", "rack2"),
                           ("rack[0-1]node[1-3]", "rack0node1"), ("r[0,2]n[1]x,y", "r0n1x"), ("a[1-", "a1"),
                           ("", "")):  # fmt: skip
        assert first_host(nodelist) == host, nodelist
    before = dict(os.environ)
    try:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
        os.environ.update(SLURM_PROCID="1", SLURM_NTASKS="4", SLURM_LOCALID="1", SLURM_NNODES="2", SLURM_STEP_NODELIST="gpu[3-4]",
                          SLURM_JOB_NODELIST="gpu[1-4]", SLURM_JOB_ID="123456")  # fmt: skip
        comm._take_ranks_of_mpi()
        got = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")]
        assert got == ["1", "4", "1", "gpu3", "32956"], got
        del os.environ["RANK"]
        os.environ.update(MASTER_ADDR="mine", MASTER_PORT="1")
        comm._take_ranks_of_mpi()
        assert os.environ["MASTER_ADDR"] == "mine" and os.environ["MASTER_PORT"] == "1"
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_what_is_not_supported_is_refused_by_name():
    from deepspeed.launcher import runner

    given = {"autotuning": ["tune"], "min_elastic_nodes": ["1"], "max_elastic_nodes": ["2"]}
    for name in runner.REFUSED:
        value = given.get(name, [])
        arguments = [f"--{name}={value[0]}"] if value else [f"--{name}"]
        assert f"--{name} is not supported" in refused(arguments), name
    for name in ("MVAPICH", "impi", "mpich"):
        assert f"--launcher {name.lower()} is not supported" in refused(["--launcher", name]) and "slurm" in refused(["--launcher", name])
    assert "--launcher kubernetes is not known" in refused(["--launcher", "kubernetes"])
    assert "--ssh_port is 0" in refused(["--ssh_port", "0"])
    assert "--hostfile" in refused(["--num_nodes", "2"]) and "--no_ssh" in refused(["--num_nodes", "2"])
    assert "--master_addr" in refused(["--num_nodes", "2", "--no_ssh", "--node_rank", "0"])
    assert "--node_rank" in refused(["--num_nodes", "2", "--no_ssh", "--master_addr", "a"])
    assert "numactl" in refused(["--no_python", "--bind_cores_to_rank"])
    assert "another host" in refused(["--include", "worker-7:0"])


def test_every_argument_of_deepspeeds_launcher_is_known():
    from deepspeed.launcher import runner

    # What `deepspeed --help` of 0.19.8 lists, and what 0.18 had besides.
    listed = """hostfile include exclude num_nodes num_gpus master_port master_addr node_rank launcher launcher_args module
        no_python no_local_rank no_ssh no_ssh_check force_multi save_pid enable_each_rank_log autotuning bind_cores_to_rank
        bind_core_list ssh_port venv_script log_level quiet elastic_training min_elastic_nodes max_elastic_nodes""".split()
    known = vars(runner.parse(["script.py"]))
    assert not [name for name in listed if name not in known]
    # And each is read somewhere, or refused.
    text = Path(runner.__file__).read_text() + Path(runner.__file__).with_name("remote.py").read_text()
    for name in listed:
        assert name in runner.REFUSED or f"options.{name}" in text, name


def test_what_other_hosts_are_told_is_the_same_start():
    """The words that a host's runner gets, as a shell there takes them apart, start torchrun as one that was started there."""
    from deepspeed.launcher import remote, runner

    given = ["--ssh_port", "2222", "--launcher_args=-o 'A b'", "--module", "--no_local_rank", "--bind_cores_to_rank",
             "--bind_core_list", "0-3", "--enable_each_rank_log", "logs", "--quiet", "--venv_script", "/a b/activate"]  # fmt: skip
    options = runner.parse([*given, "script.py", "--mine", "it's", ""])
    words = remote.words_of_host(options, {"a": [0, 1], "b": [2, 5]}, 1, "10.0.0.1", "run")
    sent = {"NAME": "it's $HOME", "OTHER": "two\nlines é"}
    line = remote.shell_line(words, sent, options.venv_script)
    start, _, rest = line.partition(" && exec ")
    assert start == f". '/a b/activate' && cd {shlex.quote(os.getcwd())}", start
    split = shlex.split(rest)
    assert split[:2] == ["sh", "-c"] and split[3:6] == ["sh", sys.executable, "-u"], split
    assert split[6].endswith("launcher/on_host.py") and split[7:] == words
    assert "HOME" not in line and "lines" not in line, "values would stand in ps"
    shown = "import os, sys; print([os.environ[name] for name in ('NAME', 'OTHER')], sys.stdin.read())"
    done = subprocess.run([*split[:5], "-c", shown], input=remote.settings(sent) + b"TERM\n", capture_output=True)
    assert done.stdout.decode() == f"{list(sent.values())} TERM\n\n", done
    again = runner.parse(words)
    assert runner.hosts_to_start(again) is None
    assert runner.place(again, 1) == (2, 1, "10.0.0.1", [2, 5])
    for name in ("module", "no_local_rank", "bind_cores_to_rank", "bind_core_list", "enable_each_rank_log", "user_args", "user_script"):
        assert getattr(again, name) == getattr(options, name), name
    assert runner.torchrun_arguments(again)[:6] == [
        "--nproc_per_node=2", "--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1", "--master_port=29500", "--rdzv_id=run",
    ]  # fmt: skip
    assert remote.ssh_words(options, "b")[-6:] == ["-p", "2222", "-o", "A b", "--", "b"]


def test_hosts_whose_output_nobody_reads_are_ended():
    """Nobody reads their lines, or the disk is full: no host waits for ever in a print, and
    a host that would go on is told to end."""
    script = """if True:
        import sys
        from ssh_loop import SshLoop
        many = [sys.executable, "-c", "for i in range(200_000): print('a line', i)"]
        endless = ["sh", "-c", 'yes & read -r word; kill $!; echo told $word >&2; exit 3']
        code = SshLoop({"a": many, "b": endless}).wait()
        print("ended with", code, file=sys.stderr)
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mine.py").write_text(script)
        launcher = Path(__file__).parents[2] / "python" / "deepspeed" / "launcher"  # without the package, which logs by itself
        started = f"PYTHONPATH={shlex.quote(str(launcher))} {shlex.quote(sys.executable)} {folder}/mine.py"
        for line, why in ((f"{started} | head -1", "Broken pipe"), (f"{started} > /dev/full", "No space left on device")):
            done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
            assert f"what the hosts say cannot be written: {why}. All hosts are ended." in done.stderr, done.stderr
            assert "b: told TERM" in done.stderr and "ended with 3" in done.stderr, done.stderr
            assert "Error" not in done.stderr and len(done.stdout.splitlines()) <= 1, done.stderr
        both = subprocess.run(["sh", "-c", f"{started} 2>&1 | head -1"], capture_output=True, text=True, timeout=120)
        assert both.stdout.startswith(("a: ", "b: ")) and not both.stderr, both


def test_mpirun_and_srun_are_called_with_what_they_know():
    from deepspeed.launcher import remote, runner

    options = runner.parse(["--launcher", "OpenMPI", "--launcher_args=--tag-output", "script.py", "--mine"])
    words = remote.mpirun_words(options, {"a": [0, 1], "b": [0]}, {"NCCL_X": "1", "MASTER_ADDR": "a"})
    assert words == ["mpirun", "-n", "3", "--host", "a:2,b:1", "--bind-to", "none", "--wdir", os.getcwd(), "--tag-output",
                     "-x", "NCCL_X", "-x", "MASTER_ADDR", sys.executable, "-u", "script.py", "--mine"], words  # fmt: skip
    options = runner.parse(["--launcher", "slurm", "--no_python", "script.py", "--mine"])
    words = remote.srun_words(options, {"a": [0, 1], "b": [0, 1]})
    assert words == ["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--nodelist=a,b", "--export=ALL",
                     "--kill-on-bad-exit=1", "script.py", "--mine"], words  # fmt: skip
    for call, word in ((lambda: remote.srun_words(options, {"a": [0], "b": [0, 1]}), "[1, 2]"),
                       (lambda: remote.srun_words(options, {"a": [1]}), "a shall give 1"),
                       (lambda: remote.mpirun_words(options, {"a": [0, 2]}, {}), "a shall give 0,2"),
                       (lambda: remote.refuse_for_mpi(runner.parse(["--launcher=slurm", "--save_pid", "x"])), "--save_pid")):  # fmt: skip
        try:
            call()
        except SystemExit as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{word} was accepted")


def test_values_of_the_environment_are_neither_logged_nor_arguments():
    """A secret travels by MLFLOW_... or .deepspeed_env; the launcher that is called here writes down what it got."""
    with tempfile.TemporaryDirectory() as folder:
        got = """#!/bin/sh
            echo "$0 $*" >> arguments
            case $0 in
            */mpirun) env > environment ;;
            *) while read -r line; do echo $line; case $line in *TOKEN*) exit ;; esac; done >> input ;;
            esac
        """
        for program in ("mpirun", "ssh"):
            Path(folder, program).write_text(got)
            Path(folder, program).chmod(0o755)
        Path(folder, ".own_env").write_text("TOKEN=hunter3\n")
        Path(folder, "hostfile").write_text("a slots=1\nb slots=1\n")
        Path(folder, "mine.py").write_text("")
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "MLFLOW_TRACKING_PASSWORD": "hunter2", "DS_ENV_FILE": ".own_env"}
        logged = ""
        for launcher in ("openmpi", "pdsh"):
            command = [sys.executable, "-m", "deepspeed.launcher.runner", "-H", "hostfile", "--launcher", launcher, "--no_ssh_check"]
            command += ["--master_addr", "a", "--log_level", "debug", "mine.py"]
            done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            logged += done.stdout + done.stderr
            assert launcher == "pdsh" or "-x MLFLOW_TRACKING_PASSWORD" in done.stdout and done.returncode == 0, logged
        arguments = Path(folder, "arguments").read_text()
        assert "/mpirun -n 2 --host a:1,b:1" in arguments and "-x TOKEN -x MASTER_ADDR -x MASTER_PORT" in arguments, arguments
        assert arguments.count("on_host.py --no_ssh") == 2, arguments
        assert "hunter" not in arguments + logged, arguments + logged
        given = Path(folder, "environment").read_text().splitlines()
        assert {"MLFLOW_TRACKING_PASSWORD=hunter2", "TOKEN=hunter3", "MASTER_ADDR=a", "MASTER_PORT=29500"} <= set(given), given
        said = Path(folder, "input").read_text().splitlines()
        assert said.count("export MLFLOW_TRACKING_PASSWORD=hunter2") == 2 and said.count("export TOKEN=hunter3") == 2, said


def test_the_environment_that_travels_is_deepspeeds_and_that_of_its_files():
    from deepspeed.launcher import remote

    before, folder_before = dict(os.environ), os.getcwd()
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as here:
        try:
            os.chdir(here)
            here = os.getcwd()
            os.environ.clear()
            os.environ.update(HOME=home, NCCL_DEBUG="INFO", PYTHONPATH="/x", MY_OWN="1", UCX_TLS="tcp", GLOO_SOCKET_IFNAME="eth1")
            os.environ["NCCL-NO-NAME"] = "1"  # no shell can be given it
            Path(home, ".env").write_text("# a comment\n\nA=1\nB=2\n")
            Path(here, ".env").write_text("B=x=y \nNCCL_DEBUG=WARN")
            sent = remote.environment_to_send(".env")
            assert sent == {"NCCL_DEBUG": "WARN", "PYTHONPATH": f"{here}{os.pathsep}/x", "UCX_TLS": "tcp", "GLOO_SOCKET_IFNAME": "eth1",
                            "A": "1", "B": "x=y"}, sent  # fmt: skip
            for wrong in ("A", "=1", "a b=1", "1A=1", "É=1"):
                Path(here, ".env").write_text(f"X=1\n{wrong}\n")
                try:
                    remote.environment_to_send(".env")
                except SystemExit as error:
                    assert ".env:2 is" in str(error) and "NAME=value" in str(error), error
                else:
                    raise AssertionError(f"{wrong} was accepted")
        finally:
            os.chdir(folder_before)
            os.environ.clear()
            os.environ.update(before)


def test_ranks_get_cores_a_pid_file_and_modules():
    # In one write: torchrun's ranks do not buffer, and lines of two ranks would mix.
    script = """if True:
        import os, pathlib, sys
        cores = sorted(os.sched_getaffinity(0))
        above = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(") ", 1)[1].split()[1]
        own = pathlib.Path(os.environ["XDG_RUNTIME_DIR"])
        files = [(pid, own / f"{pid}.deepspeed", pathlib.Path(f"/tmp/{pid}.deepspeed")) for pid in (str(os.getppid()), above)]
        same = any(file.exists() and file.read_text() == pid and not shared.exists() for pid, file, shared in files)
        os.write(1, f"rank {os.environ['RANK']} {cores} {sys.argv[1:]} {__name__}\\npid {same}\\n".encode())
    """
    cores = sorted(os.sched_getaffinity(0))
    ranks = 2 if len(cores) > 1 else 1
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mine.py").write_text(script)
        command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", str(ranks), "--master_port", str(free_port())]
        command += ["--bind_cores_to_rank", "--bind_core_list", ",".join(map(str, cores[:ranks])), "--save_pid", "--quiet"]
        environment = os.environ | {"XDG_RUNTIME_DIR": folder}
        done = subprocess.run([*command, "--module", "mine", "--x"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        for rank in range(ranks):
            assert f"rank {rank} [{cores[rank]}] ['--local_rank={rank}', '--x'] __main__" in done.stdout, done.stdout
        assert "pid True" in done.stdout, done.stdout
        assert not list(Path(folder).glob("*.deepspeed")), "it is gone with the process"


def test_ranks_may_share_a_gpu():
    assert "torch sees none" in refused(["--num_gpus", "2", "--share_gpu"])
    assert "shoal launch --share-gpu" in refused(["--num_gpus", "2", "--share_gpu", "--no_python"])
    from deepspeed.launcher.with_local_rank import share_gpu

    before = dict(os.environ)
    try:
        os.environ.update(RANK="3", WORLD_SIZE="16", NCCL_SOCKET_IFNAME="eth0")
        share_gpu()
        got = {name: value for name, value in os.environ.items() if name.startswith(("NCCL_", "CUDA_DEVICE")) and name not in before}
        assert got == {
            "NCCL_HOSTID": "shoal-rank-3",
            "NCCL_SOCKET_IFNAME": "eth0",
            "NCCL_IB_DISABLE": "1",
            "CUDA_DEVICE_MAX_CONNECTIONS": "4",
            "NCCL_MAX_CTAS": "2",
            "NCCL_MAX_P2P_NCHANNELS": "2",
        }, got
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_nccl_is_taken_by_the_rule_of_the_engine():
    from deepspeed import comm
    from shoal import Error

    before, counted, available = dict(os.environ), torch.cuda.device_count, torch.cuda.is_available
    try:
        torch.cuda.is_available = lambda: True
        for gpus, ranks, host_id, takes in ((2, 2, "", True), (1, 2, "", False), (1, 2, "rank-0", True), (0, 1, "rank-0", False)):
            torch.cuda.device_count = lambda gpus=gpus: gpus
            os.environ.update(LOCAL_WORLD_SIZE=str(ranks), NCCL_HOSTID=host_id, SHOAL_TRANSPORT="auto")
            assert comm._nccl_takes_the_ranks() is takes, (gpus, ranks, host_id)
            os.environ["SHOAL_TRANSPORT"] = "nccl"
            try:
                assert comm._nccl_takes_the_ranks() and takes
            except Error as error:
                assert not takes and "shoal launch --share-gpu" in str(error), error
    finally:
        torch.cuda.device_count, torch.cuda.is_available = counted, available
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    main(globals())
