#!/usr/bin/env python3
"""The zero-bubble authors' scheduler against ours, on one machine.

  sched_vs_authors.py ZB_PY ROWS_CSV [INSTANCES_CSV]

ZB_PY is megatron/core/pipeline_parallel/zerobubble/scheduler/zb.py of a checkout
of sail-sg/zero-bubble-pipeline-parallelism; only its heuristic runs (torch and
pulp are not needed and are replaced by empty modules). ROWS_CSV is
tests/oracles/schedules/authors_zb.csv; INSTANCES_CSV what `sched_auto DIR N
EFFORT CSV` wrote. Prints bubble rates and seconds of theirs for the rows, and
for the instances gaps to the bound, theirs and ours.
"""
import csv
import sys
import time
import types


def load(path):
    for name in ("torch", "pulp"):
        module = types.ModuleType(name)
        module.Tensor = object
        sys.modules[name] = module
    parent = "megatron.core.pipeline_parallel.zerobubble.scheduler.graph"
    parts = parent.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules[".".join(parts[:i])] = types.ModuleType(parts[i - 1])
    graph = sys.modules[parent]
    graph.GraphConfig = graph.ScheduledNode = graph.FuncType = object
    module = types.ModuleType("zb")
    sys.modules["zb"] = module
    with open(path) as f:
        exec(compile(f.read(), path, "exec"), module.__dict__)
    return module


def run(zb, p, m, f, b, w, comm, limit, w_share):
    """Longest stage span and seconds; None where it finds nothing."""
    unit = 1 << 20
    mem_w = round(w_share * unit)
    config = types.SimpleNamespace(
        cost_f=f, cost_b=b, cost_w=w, cost_comm=comm,
        mem_f=[unit] * p, mem_b=[mem_w - unit] * p, mem_w=[-mem_w] * p,
        max_mem=[int(limit * unit + 0.5)] * p, print_scaling=1)
    start = time.perf_counter()
    try:
        span = zb.initial_solution(zb.Graph.build_graph(p, m, config), False)[0]
    except (ValueError, AssertionError, IndexError):
        span = None
    return span, time.perf_counter() - start


def rows(zb, path):
    lines = [l for l in open(path) if not l.startswith("#")]
    total = 0
    for r in csv.DictReader(lines):
        p, m = int(r["stages"]), int(r["microbatches"])
        f, b, w, c = (int(r[k]) for k in ("f", "b", "w", "comm"))
        span, s = run(zb, p, m, [f] * p, [b] * p, [w] * p, c,
                      float(r["limit"]), float(r["w_share"]))
        total += s
        print(f"  p {p} m {m} limit {r['limit']} w {float(r['w_share']):.3f}: "
              f"bubble {1 - m * (f + b + w) / span:.4f} (recorded "
              f"{r['bubble']}) in {s:.3f} s")
    print(f"rows: {total:.2f} s together")


def instances(zb, path):
    classes = {}
    for r in csv.reader(open(path)):
        name, p, m = r[0], int(r[1]), int(r[2])
        ours, bound, seconds = int(r[6]), int(r[7]), float(r[8])
        t = [int(x) for x in r[9:]]
        span, s = run(zb, p, m, t[:p], t[p:2 * p], t[2 * p:], int(r[3]),
                      float(r[4]), float(r[5]))
        classes.setdefault(name, []).append((span, ours, bound, s, seconds))
    for name, rs in classes.items():
        found = [x for x in rs if x[0] is not None]
        theirs = [x[0] / x[2] - 1 for x in found]
        ours = [x[1] / x[2] - 1 for x in rs]
        print(f"{name}: mean gap theirs {100 * sum(theirs) / len(theirs):.3f} % "
              f"(finds none for {len(rs) - len(found)}), ours "
              f"{100 * sum(ours) / len(ours):.3f} %; better "
              f"{sum(x[1] < x[0] for x in found)}, same "
              f"{sum(x[1] == x[0] for x in found)}, worse "
              f"{sum(x[1] > x[0] for x in found)}; "
              f"{1e3 * sum(x[3] for x in rs) / len(rs):.1f} ms theirs, "
              f"{1e3 * sum(x[4] for x in rs) / len(rs):.1f} ms ours")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    zb = load(sys.argv[1])
    rows(zb, sys.argv[2])
    if len(sys.argv) > 3:
        instances(zb, sys.argv[3])


main()
