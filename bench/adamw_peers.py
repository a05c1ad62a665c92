"""The fused AdamW beside its peers, in alternating rounds of one run: the roof and Shoal (bench_adamw --serve), torch's
fused AdamW, DeepSpeedCPUAdam. Every one does the same job: unscale and clip the gradient by one factor, one AdamW step,
weights out. Needs .venv-deepspeed (tools/peers_setup.sh) and the built bench_adamw:

    .venv-deepspeed/bin/python bench/adamw_peers.py --program build/bench/bench_adamw --out bench/results

Forms: bf16 = bf16 gradient in, bf16 weight out, exact fp32 master and moments; fp32 = fp32 throughout.
"""
import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
import time

# glibc asks for large pages for what it maps, as bench_adamw does: the peers get the same memory as we do. And no
# thread may spin on after its work, since the next round belongs to someone else. DeepSpeed builds its CPU kernel
# without asking for a GPU.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "OMP_WAIT_POLICY": "passive", "DS_ACCELERATOR": "cpu"}

LR, BETA1, BETA2, EPS, DECAY, SCALE = 1e-4, 0.9, 0.999, 1e-8, 0.01, 0.5
NBYTES = {"bf16": 26, "fp32": 28}  # read and written for an element: see nbytes_read and nbytes_written in adamw.cpp


class Shoal:
    """bench_adamw as a child that measures when asked."""

    def __init__(self, program):
        self.child = subprocess.Popen([program, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.isa = self.child.stdout.readline().strip()

    def measure(self, form, what, numel, threads, passes):
        self.child.stdin.write(f"{form} {what} {numel} {threads} {passes}\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            raise SystemExit(f"bench_adamw ended with status {self.child.wait()}")
        return float(answer)


class Job:
    """The tensors that torch and DeepSpeed work on, and their ways through the same job."""

    def __init__(self, form, numel):
        import torch
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        self.torch, self.form = torch, form
        grad = (torch.arange(numel, dtype=torch.float32) % 1009) * 1e-4 - 5e-2
        self.param = torch.nn.Parameter(torch.zeros(numel))
        self.grad = grad.clone()
        self.first, self.second = torch.zeros(numel), torch.full((numel,), 1e-4)
        self.step_count = torch.tensor(10.0)
        self.divisor = torch.tensor(1 / SCALE)
        if form == "bf16":
            self.half_grad, self.half_weight = grad.bfloat16(), torch.zeros(numel, dtype=torch.bfloat16)
        self.deepspeed = DeepSpeedCPUAdam([self.param], lr=LR, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY,
                                          adamw_mode=True)
        # DeepSpeed shares the moments with torch's way: less memory, and both read what they write.
        self.deepspeed.state[self.param] = {"step": 10, "exp_avg": self.first, "exp_avg_sq": self.second}

    def bring_grad(self):
        if self.form == "bf16":
            self.grad.copy_(self.half_grad)

    def take_weight(self):
        if self.form == "bf16":
            self.half_weight.copy_(self.param.data)

    def fused(self, divisor):
        self.torch._fused_adamw_([self.param.data], [self.grad], [self.first], [self.second], [], [self.step_count],
                                 lr=LR, beta1=BETA1, beta2=BETA2, weight_decay=DECAY, eps=EPS, amsgrad=False,
                                 maximize=False, grad_scale=divisor, found_inf=None)

    def torch_scale_inside(self):
        self.bring_grad()
        self.fused(self.divisor)
        self.take_weight()

    def torch_scale_before(self):
        self.bring_grad()
        self.grad.mul_(SCALE)
        self.fused(None)
        self.take_weight()

    def deepspeed_step(self):
        self.bring_grad()
        self.grad.mul_(SCALE)
        self.param.grad = self.grad
        self.deepspeed.step()
        self.take_weight()


def timed(way, passes):
    begin = time.perf_counter()
    for _ in range(passes):
        way()
    return (time.perf_counter() - begin) / passes


def measure_row(shoal, form, numel, threads, rounds):
    """Median seconds of a pass for each contender: one round of each, over and over."""
    import torch

    torch.set_num_threads(threads)
    job = Job(form, numel)
    passes = max(1, (32 << 20) // numel)
    ways = {
        "roof": lambda: shoal.measure(form, "roof", numel, threads, passes),
        "shoal": lambda: shoal.measure(form, "shoal", numel, threads, passes),
        "torch, scale inside": lambda: timed(job.torch_scale_inside, passes),
        "torch, scale before": lambda: timed(job.torch_scale_before, passes),
        "deepspeed": lambda: timed(job.deepspeed_step, passes),
    }
    seconds = {name: [] for name in ways}
    with torch.no_grad():
        for turn in range(rounds + 1):
            for name, way in ways.items():
                taken = way()
                if turn > 0:  # the first round warms caches, clock and page tables
                    seconds[name].append(taken)
                if form == "fp32":
                    job.grad.fill_(1e-2)  # the peers scale it in place; without this it would fade to denormals
    return {name: statistics.median(values) for name, values in seconds.items()}


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    shown = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    names = [line.split(":")[1].strip() for line in shown.splitlines() if line.startswith("Model name")]
    return names[0] if names else platform.processor() or "unknown"


def report(rows, shoal, arguments):
    import deepspeed
    import torch

    is_vectorized = platform.machine() in ("x86_64", "AMD64")
    deepspeed_form = ("its vector form" if is_vectorized else
                      "its scalar form (it has no vector form for this CPU), compiled with -march=native")
    load = os.getloadavg()[0]
    lines = [
        f"# Fused AdamW, {platform.machine()}, {datetime.date.today()}",
        "",
        f"Command: `{' '.join(['python', 'bench/adamw_peers.py'] + arguments)}`",
        "",
        f"Machine: {cpu_model()}, {os.cpu_count()} cores; load average at the end {load:.1f}. Shoal runs its "
        f"{shoal.isa} version; torch {torch.__version__}; DeepSpeed {deepspeed.__version__}, {deepspeed_form}.",
        "",
        "Medians of alternating rounds, wall clock. GB/s counts the bytes that the job must read and write: "
        f"{NBYTES['bf16']} an element in the bf16 form (gradient, weight, remainder, two moments), "
        f"{NBYTES['fp32']} in the fp32 form. The roof is a plain loop over the same arrays. torch is the faster of "
        "scaling inside its kernel and before it. All have large pages; idle OpenMP threads sleep "
        "(OMP_WAIT_POLICY=passive), so that nobody's threads spin in another's round.",
        "",
        "| form | elements | threads | roof GB/s | shoal GB/s | of the roof | shoal ms | torch ms | DeepSpeed ms | "
        "against torch | against DeepSpeed |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (form, numel, threads), seconds in rows.items():
        nbytes = numel * NBYTES[form]
        torch_seconds = min(seconds["torch, scale inside"], seconds["torch, scale before"])
        ours = seconds["shoal"]
        lines.append(
            f"| {form} | {numel >> 20} Mi | {threads} | {nbytes / seconds['roof'] * 1e-9:.1f} | "
            f"{nbytes / ours * 1e-9:.1f} | {100 * seconds['roof'] / ours:.0f} % | {ours * 1e3:.2f} | "
            f"{torch_seconds * 1e3:.2f} | {seconds['deepspeed'] * 1e3:.2f} | {torch_seconds / ours:.2f} x | "
            f"{seconds['deepspeed'] / ours:.2f} x |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/bench/bench_adamw")
    parser.add_argument("--out", help="folder that receives adamw-<arch>-<date>.md")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mi", type=int, nargs="+", default=[1, 16, 64], help="sizes in Mi elements")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--forms", nargs="+", default=["bf16", "fp32"], choices=list(NBYTES))
    options = parser.parse_args()

    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        python = sys.executable
        os.environ["PATH"] = os.path.dirname(python) + os.pathsep + os.environ["PATH"]  # ninja, for DeepSpeed
        os.execve(python, [python] + sys.argv, {**os.environ, **ENVIRONMENT})

    shoal = Shoal(options.program)
    rows = {}
    for form in options.forms:
        for mi in options.mi:
            for threads in options.threads:
                rows[form, mi << 20, threads] = measure_row(shoal, form, mi << 20, threads, options.rounds)
    text = report(rows, shoal, sys.argv[1:])
    print(text)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        path = os.path.join(options.out, f"adamw-{platform.machine()}-{datetime.date.today()}.md")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        print(f"written to {path}")


if __name__ == "__main__":
    main()
