"""Where the GPU's time goes: kernels of a trace that `shoal train --trace-steps 5-7` wrote, the dearest first, and how long none runs.

    kernel_times.py run/trace.json [--steps 3] [--rows 25]
"""

import argparse
import collections
import json
import re
from pathlib import Path

# Names of matmuls and of torch's templates say little after this many characters.
NAME = 70


def idle_ms(kernels):
    """Milliseconds between the first kernel's begin and the last one's end in which none runs."""
    idle, busy_until = 0, None
    for begin, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in kernels):
        if busy_until is not None:
            idle += max(0, begin - busy_until)
        busy_until = max(end, busy_until or end)
    return idle / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--steps", type=int, default=3, help="steps in the trace; times are of one")
    parser.add_argument("--rows", type=int, default=25)
    args = parser.parse_args()

    trace = json.loads(args.trace.read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    counts, times = collections.Counter(), collections.Counter()
    kernels = [event for event in events if event.get("cat") == "kernel"]
    for event in kernels:
        name = re.sub(r"^void |at::native::|shoal::kernels::", "", event["name"])[:NAME]
        counts[name] += 1
        times[name] += event["dur"] / 1e3
    total = sum(times.values())
    if total == 0:
        raise SystemExit(f"{args.trace} has no kernels. Was it traced on a GPU?")
    print(f"| kernel | times a step | ms a step | share |\n|---|---:|---:|---:|")
    for name, ms in times.most_common(args.rows):
        print(f"| `{name}` | {counts[name] / args.steps:g} | {ms / args.steps:.2f} | {ms / total:.1%} |")
    rest = total - sum(ms for _, ms in times.most_common(args.rows))
    print(f"| others | {len(counts) - min(len(counts), args.rows)} kinds | {rest / args.steps:.2f} | {rest / total:.1%} |")
    print(f"| all | {sum(counts.values()) / args.steps:g} | {total / args.steps:.2f} | |")
    span = (max(e["ts"] + e["dur"] for e in kernels) - min(e["ts"] for e in kernels)) / 1e3
    print(f"| no kernel runs | | {idle_ms(kernels) / args.steps:.2f} | {idle_ms(kernels) / span:.1%} of a step |")


if __name__ == "__main__":
    main()
