# SPDX-License-Identifier: Apache-2.0
"""What jobs of several ranks have in common (ddp.py, tensor.py): a process for each GPU, that begin together."""
import argparse
import sys

import torch


def parser(text, layers, width, batch, compared):
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--gpus", default="0,1")
    made.add_argument("--port", type=int, default=29511)
    made.add_argument("--seconds", type=float, default=20)
    made.add_argument("--layers", type=int, default=layers)
    made.add_argument("--width", type=int, default=width)
    made.add_argument("--batch", type=int, default=batch)
    made.add_argument("--compared", type=int, default=compared)
    return made


def run(rank, options):
    """Starts rank(number, options, gate, gpus) for each GPU, opens the gate at the first line of the standard input, and
    exits with the worst of their statuses."""
    gpus = [int(gpu) for gpu in options.gpus.split(",")]
    context = torch.multiprocessing.get_context("spawn")
    gate = context.Event()
    ranks = [context.Process(target=rank, args=(number, options, gate, gpus)) for number in range(len(gpus))]
    for process in ranks:
        process.start()
    sys.stdin.readline()
    gate.set()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in ranks))
