#!/usr/bin/env python3
"""Breaks training runs in many ways, under several layouts, and looks at what becomes of them.

    bench/faults/run.py --trials 500 --csv faults.csv --table faults.md

Each trial starts a small run, breaks it, and asks: did it end in time, with the right exit code, naming what was
wrong; did it go on when it was resumed; and were weights, optimizer state and losses at its end those of a run that
nobody disturbed, to the bit. Faults and layouts take turns, places and moments are drawn from --seed. Trials that the CSV
file has already are not repeated: started again, it goes on where it stopped. Disk full needs root (a small tmpfs), the network
cut needs root and iproute2 (an emulated cluster); without them these trials are left out, with a word.
"""
import argparse
import concurrent.futures
import csv
import hashlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

STEPS, SAVE_EVERY = 9, 3
LIMIT = 300  # seconds that a run may take, start included, on a machine that does other things, too
LAYOUTS = {  # ranks, options: the same global batch everywhere
    "single": (1, "--micro-batch 4"),
    "ZeRO-3": (2, "--micro-batch 2 --zero 3"),
    "tp": (2, "--micro-batch 4 --tp 2"),
    "pp": (2, "--micro-batch 2 --pp 2"),
    "all three": (8, "--micro-batch 2 --tp 2 --pp 2 --zero 3"),
}
COLUMNS = ["trial", "fault", "layout", "detail", "in_time", "code_right", "name_right", "resumed", "bit_equal",
           "exit_code", "seconds", "said"]
CHECKS = COLUMNS[4:9]


class Trial:
    """One run that is broken, and the run that goes on after it."""

    def __init__(self, setup, fault, layout, seed):
        self.setup, self.fault, self.layout = setup, fault, layout
        self.ranks, self.options = LAYOUTS[layout]
        self.random = random.Random(seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="quintet-fault-", dir=setup.scratch))
        self.out = self.folder / "run"
        self.rank = self.random.randrange(self.ranks)
        self.step = self.random.randrange(2, STEPS)
        self.result = dict(fault=fault, layout=layout, detail="", in_time=True, code_right=False, name_right=False,
                           resumed=False, bit_equal=False, exit_code="", seconds=0, said="")

    # ---- Running.

    def train(self, out=None, more=""):
        return (f"train --model tiny --source 32 --set schedule.kind=constant --set schedule.warmup_steps=2 "
                f"--set output.log_every=1000 --set parallel.whole_below=0 --set parallel.timeout=2 {self.options} "
                f"--set batch.global=8 --set train.steps={STEPS} --set output.save_every={SAVE_EVERY} "
                f"--set output.keep=0 --set train.threads=1 --set output.folder={out or self.out} {more}")

    def launch(self, arguments, where=""):
        where = where or f"-n {self.ranks}"
        return f"{self.setup.quintet} launch {where} --threads 1 -- {arguments}"

    def run(self, command, environment=None, beside=None):
        """Exit code and output; None as code where it did not end in time. `beside` runs while it does."""
        process = subprocess.Popen(command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env={**os.environ, **(environment or {})}, start_new_session=True)
        helper = None
        if beside:
            helper = threading.Thread(target=beside, args=(process,), daemon=True)
            helper.start()
        try:
            output, _ = process.communicate(timeout=LIMIT)
            code = process.returncode
        except subprocess.TimeoutExpired:
            end_all_with(str(self.folder))
            process.kill()
            output, _ = process.communicate()
            code = None
        if helper:
            helper.join()
        left = processes_with(str(self.folder))
        for _ in range(50):  # what was killed takes a moment to be gone
            if not left:
                break
            time.sleep(0.1)
            left = processes_with(str(self.folder))
        if left:
            self.result["in_time"] = False
            self.result["said"] = f"{len(left)} processes were left behind"
            end_all_with(str(self.folder))
        return code, output

    def broken(self, command, code, name, environment=None, beside=None):
        began = time.time()
        got, output = self.run(command, environment, beside)
        result = self.result
        result["seconds"] = round(time.time() - began, 1)
        result["in_time"] = result["in_time"] and got is not None
        result["exit_code"] = "" if got is None else got
        result["code_right"] = got == code
        result["name_right"] = re.search(name, output) is not None
        messages = [line for line in output.splitlines() if line.startswith(("quintet:", "warning:"))]
        if not result["said"]:
            result["said"] = " | ".join(messages)[:300]
        if code != 0 and len([line for line in messages if line.startswith("quintet:")]) != 1:
            result["name_right"] = False  # one cause, one message

    def resume(self, where=""):
        code, output = self.run(self.launch(self.train(more="--set output.resume=true"), where))
        self.result["resumed"] = code == 0
        if code != 0:
            self.result["said"] += " | RESUMED: " + output[-300:].replace("\n", " ")
        self.result["bit_equal"] = end_of(self.out) == self.setup.reference(self.layout)

    # ---- The faults.

    def ordered(self, kind, code, name):
        self.result["detail"] = f"rank {self.rank}, step {self.step}"
        self.broken(self.launch(self.train()), code, name, {"QUINTET_FAULT": f"{kind} {self.rank} {self.step}"})
        self.resume()

    def named(self, what):
        """A rank alone does not name itself."""
        return what if self.ranks == 1 else f"rank {self.rank} {what}"

    def kill(self):
        self.ordered("kill", 8, "killed by signal 9" if self.ranks == 1 else self.named("was lost in step"))

    def stop(self):
        self.ordered("stop", 8, self.named("has been silent for 2 s in step"))

    def hang(self):
        self.ordered("hang", 8, f"rank {self.rank} has been stuck for .* s in step {self.step}, in running the step")

    def exception(self):
        self.ordered("throw", 1, "internal error" if self.ranks == 1 else
                     self.named(f"failed in step {self.step}: internal error"))

    def memory(self):
        self.ordered("memory", 6, "the system refused memory" if self.ranks == 1 else
                     self.named(f"failed in step {self.step}: the system refused memory"))

    def disk(self):
        # Too small from the beginning, which is noticed before anything is written; or filled up by somebody else
        # while the first checkpoint is being written, up to a few KiB.
        filled = self.random.random() < 0.6
        size = self.random.randrange(64, 9800)  # KiB
        left = self.random.randrange(0, 3000)
        self.result["detail"] = f"filled to {left} KiB while writing" if filled else f"{size} KiB"
        small = self.folder / "small"

        def fill(process):
            while process.poll() is None:
                if any((small / "run/checkpoints").glob("*")):
                    state = os.statvfs(small)
                    try:
                        (small / "filler").write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - left * 1024)))
                    except OSError:
                        pass  # the run took the rest meanwhile: full is full
                    return
                time.sleep(0.0002)

        def missed():
            """On a busy machine the run may be over, all its checkpoints whole, before anything fills up."""
            steps = range(SAVE_EVERY, STEPS + 1, SAVE_EVERY)
            return (self.result["exit_code"] == 0 and end_of(self.out) == self.setup.reference(self.layout) and
                    all((self.out / "checkpoints" / f"step-{step:08}" / "manifest.json").exists() for step in steps))

        small.mkdir()
        for _ in range(10):
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={40960 if filled else size}k", "none", small], check=True)
            try:
                self.broken(self.launch(self.train(out=small / "run")), 7, str(small), beside=fill if filled else None)
                shutil.copytree(small / "run", self.out, dirs_exist_ok=True)
            finally:
                subprocess.run(["umount", "-l", small], check=True)
            if not (filled and missed()):
                break
            shutil.rmtree(self.out)
        (self.out / "lock").unlink(missing_ok=True)
        self.resume()

    def flip(self):
        # A run that was lost after step 6, with a bit of the checkpoint of step 6 turned over.
        shutil.copytree(self.setup.reference_folder(self.layout), self.out)
        shutil.rmtree(self.out / "checkpoints" / f"step-{STEPS:08}")
        newest = self.out / "checkpoints" / f"step-{STEPS - SAVE_EVERY:08}"
        files = sorted(newest.iterdir())
        file = files[self.random.randrange(len(files))]
        contents = bytearray(file.read_bytes())
        bit = self.random.randrange(8 * len(contents))
        contents[bit // 8] ^= 1 << bit % 8
        file.write_bytes(contents)
        self.result["detail"] = f"{file.name} bit {bit}"
        self.broken(self.launch(self.train(more="--set output.resume=true")), 0,
                    f"FALLING BACK to the checkpoint of step {STEPS - 2 * SAVE_EVERY}")
        self.result["resumed"] = self.result["code_right"]
        self.result["bit_equal"] = end_of(self.out) == self.setup.reference(self.layout)

    def scan(self):
        tried = [0]

        def knock(process):
            seen = set()
            while process.poll() is None:
                for address in listening(str(self.folder)) - seen:
                    seen.add(address)
                    for greeting in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(300), b"quintet 0 1\n"):
                        try:
                            with socket.create_connection(address, timeout=0.2) as connection:
                                connection.sendall(greeting)
                                tried[0] += 1
                        except OSError:
                            pass
                time.sleep(0.005)

        self.broken(self.launch(self.train()), 0, "trained to step", beside=knock)
        self.result["detail"] = f"{tried[0]} connections"
        self.result["resumed"] = self.result["code_right"]
        self.result["bit_equal"] = end_of(self.out) == self.setup.reference(self.layout)

    def cut(self):
        name = f"f{os.getpid() % 100000}x{self.random.randrange(1000)}"
        self.result["detail"] = f"after step {self.step - 1}"
        subprocess.run([self.setup.quintet, "cluster", "up", "--name", name, "--nodes", "2", "--ranks-per-node",
                        str(self.ranks // 2), "--bandwidth", "none"], check=True, stdout=subprocess.DEVNULL)
        cable = ["ip", "-n", f"qt-{name}-sw", "link", "set", "v1"]

        def pull(process):
            metrics = self.out / "metrics.jsonl"
            while process.poll() is None:
                if metrics.exists() and metrics.read_bytes().count(b"\n") >= self.step - 1:
                    subprocess.run(cable + ["down"], check=True)
                    return
                time.sleep(0.005)

        try:
            # The run would be over before it is cut: it takes far more steps, and its resumption the usual ones.
            self.broken(self.launch(self.train(more="--set train.steps=1000000 --set output.save_every=0"),
                                    f"--cluster {name}"), 8, "rank [0-9]+ has been silent for 2 s in step", beside=pull)
            subprocess.run(cable + ["up"], check=True)
            self.resume(f"--cluster {name}")
        finally:
            subprocess.run([self.setup.quintet, "cluster", "down", "--name", name], stdout=subprocess.DEVNULL)

    def config(self):
        other, said = self.random.choice([("train.seed=2", "train.seed = 2 "), ("batch.global=16", "batch.global = 16 "),
                                          ("optimizer.beta1=0.8", "optimizer.beta1 = 0.8 ")])
        rank = self.random.randrange(1, self.ranks)
        self.result["detail"] = f"rank {rank}: {other}"
        mpirun = "mpirun --quiet --oversubscribe --bind-to none"
        if os.geteuid() == 0:
            mpirun += " --allow-run-as-root"
        parts = [(rank, ""), (1, f"--set {other}"), (self.ranks - rank - 1, "")]
        line = " : ".join(f"-n {count} {self.setup.quintet} {self.train(more=more)}" for count, more in parts if count)
        self.broken(f"{mpirun} {line}", 2,
                    f"rank {rank} has another configuration than rank 0: {re.escape(said)}")
        self.resume()

    def try_it(self):
        began = time.time()
        try:
            getattr(self, self.fault)()
        finally:
            end_all_with(str(self.folder))
            shutil.rmtree(self.folder, ignore_errors=True)
        self.result["seconds"] = self.result["seconds"] or round(time.time() - began, 1)
        return self.result


FAULTS = {  # name: how it is called in the table, layouts it makes sense for
    "kill": ("a rank is killed", list(LAYOUTS)),
    "stop": ("a rank is stopped", [name for name in LAYOUTS if name != "single"]),
    "hang": ("a rank hangs", list(LAYOUTS)),
    "exception": ("an exception on a rank", list(LAYOUTS)),
    "memory": ("a rank is out of memory", list(LAYOUTS)),
    "disk": ("the disk is full", list(LAYOUTS)),
    "flip": ("a bit flips in a checkpoint", list(LAYOUTS)),
    "scan": ("ports are scanned", [name for name in LAYOUTS if name != "single"]),
    "cut": ("the network is cut", [name for name in LAYOUTS if name != "single"]),
    "config": ("a rank has another configuration", [name for name in LAYOUTS if name != "single"]),
}


# ---- Looking at runs and processes.

def end_of(folder):
    """Weights, optimizer state and losses at the end of a run; nothing where it has no end."""
    last = folder / "checkpoints" / f"step-{STEPS:08}"
    if not last.is_dir():
        return None
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(last.glob("*.safetensors"))]
    losses = re.findall(r'"loss":([^,}]*)', (folder / "metrics.jsonl").read_text())
    return sums, losses


def processes_with(mark):
    """Ranks whose arguments carry the mark, zombies aside."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "cmdline").read_text(errors="replace"):
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def end_all_with(mark):
    for process in processes_with(mark):
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass


def listening(mark):
    """Addresses at which processes with the mark listen."""
    inodes = set()
    for process in processes_with(mark):
        try:
            for link in pathlib.Path(f"/proc/{process}/fd").iterdir():
                match = re.match(r"socket:\[(\d+)\]", os.readlink(link))
                if match:
                    inodes.add(match.group(1))
        except OSError:
            pass
    found = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in inodes:
            address, port = words[1].split(":")
            numbers = [str(int(address[i:i + 2], 16)) for i in (6, 4, 2, 0)]
            host = ".".join(numbers)
            found.add(("127.0.0.1" if host == "0.0.0.0" else host, int(port, 16)))
    return found


class Setup:
    """The program, and for each layout a run that nobody disturbed."""

    def __init__(self, quintet, scratch):
        self.quintet, self.scratch = quintet, scratch
        self.lock, self.folders, self.ends = threading.Lock(), {}, {}

    def reference_folder(self, layout):
        with self.lock:
            if layout not in self.folders:
                trial = Trial(self, "kill", layout, 0)
                code, output = trial.run(trial.launch(trial.train()))
                if code != 0:
                    sys.exit(f"an undisturbed run failed ({layout}):\n{output}")
                self.folders[layout], self.ends[layout] = trial.out, end_of(trial.out)
            return self.folders[layout]

    def reference(self, layout):
        self.reference_folder(layout)
        return self.ends[layout]


def possible(quintet):
    """Faults that this machine and user can try."""
    faults = dict(FAULTS)
    if os.geteuid() != 0:
        print("not root: no trials of a full disk or a cut network", file=sys.stderr)
        del faults["disk"], faults["cut"]
        return faults
    name = f"f{os.getpid() % 100000}"
    up = subprocess.run([quintet, "cluster", "up", "--name", name, "--bandwidth", "none"], capture_output=True, text=True)
    subprocess.run([quintet, "cluster", "down", "--name", name], capture_output=True)
    if up.returncode != 0:
        print(f"no trials of a cut network: {up.stderr.strip()}", file=sys.stderr)
        del faults["cut"]
    return faults


# ---- Results.

def read_rows(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows):
    """Trials that held in every respect, of those made, by fault and layout."""
    good = lambda row: all(row[check] == "yes" for check in CHECKS)
    lines = ["| fault | " + " | ".join(LAYOUTS) + " | all | in time | right code | right name | resumed | bit-equal |",
             "|---" * (len(LAYOUTS) + 7) + "|"]
    count = lambda some, test: f"{sum(map(test, some))}/{len(some)}" if some else "-"
    for fault, (title, _) in list(FAULTS.items()) + [(None, ("**all**", None))]:
        of_fault = [row for row in rows if fault in (None, row["fault"])]
        cells = [count([row for row in of_fault if row["layout"] == layout], good) for layout in LAYOUTS]
        cells.append(count(of_fault, good))
        cells += [count(of_fault, lambda row, check=check: row[check] == "yes") for check in CHECKS]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default=str(root / "build/quintet"), help="the program (default: %(default)s)")
    parser.add_argument("--trials", type=int, default=500, help="how many, in all (default: %(default)s)")
    parser.add_argument("--only", default="", help="regular expression for FAULT/LAYOUT, e.g. 'flip/|kill/pp'")
    parser.add_argument("--jobs", type=int, default=1, help="trials at the same time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="start no trial after so many; 0: no limit")
    parser.add_argument("--csv", type=pathlib.Path, default=pathlib.Path("faults.csv"), help="a row for each trial")
    parser.add_argument("--table", type=pathlib.Path, help="a Markdown table of them (default: printed only)")
    options = parser.parse_args()

    faults = possible(options.quintet)
    kinds = [(fault, layout) for fault in faults for layout in faults[fault][1]
             if re.search(options.only, f"{fault}/{layout}")]
    if not kinds:
        sys.exit(f"--only {options.only}: no fault and layout of that name")
    # Shuffled within each turn, so that whatever is stopped early has tried everything alike.
    planned = []
    for turn in range(-(-options.trials // len(kinds))):
        order = kinds[:]
        random.Random(options.seed * 1000003 + turn).shuffle(order)
        planned += [(f"{turn}/{fault}/{layout}", fault, layout) for fault, layout in order]
    planned = planned[:options.trials]
    rows = read_rows(options.csv)
    done = {row["trial"] for row in rows}
    todo = [trial for trial in planned if trial[0] not in done]
    began = time.time()
    scratch = tempfile.mkdtemp(prefix="quintet-faults-")
    setup = Setup(options.quintet, scratch)
    writing = threading.Lock()
    new = not options.csv.exists()
    with options.csv.open("a", newline="") as file, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()

        def one(trial):
            if options.minutes and time.time() - began > 60 * options.minutes:
                return
            name, fault, layout = trial
            setup.reference(layout)
            result = Trial(setup, fault, layout, f"{options.seed}/{name}").try_it()
            row = {"trial": name, **{key: {True: "yes", False: "NO"}.get(value, value) if key in CHECKS else value
                                     for key, value in result.items()}}
            with writing:
                writer.writerow(row)
                file.flush()
                rows.append(row)
                failed = [check for check in CHECKS if row[check] != "yes"]
                print(f"{len(rows)}/{len(planned)} {name} ({row['detail']}, {row['seconds']} s): "
                      + ("held" if not failed else f"FAILED {', '.join(failed)}: {row['said']}"), flush=True)

        try:
            list(pool.map(one, todo))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    shutil.rmtree(scratch, ignore_errors=True)
    text = table(rows)
    print(text)
    if options.table:
        options.table.write_text(text)
    return 0 if all(row[check] == "yes" for row in rows for check in CHECKS) else 1


if __name__ == "__main__":
    sys.exit(main())
