#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes each fix of fixes.txt out and tells a seed of the interleavings that finds it.

    mvn -pl multiconnector -am test-compile
    multiconnector/src/test/mutants/fixes-out.py [--seeds FROM TO] [--class-path FILE] [FIX...]

The tree is not touched: patched sources are compiled into a temporary folder, which goes first on
the class path. FIX is the number of one, such as 1a. FILE holds the class path of the modules'
dependencies; without it Maven is asked. Fixes of "directed only" are
tried when they are named. Seeds of 0 to 300 are those of the normal run. Several run
at a time: the one that finds a missing fix first is not always the same. Ends with 1 when a fix was not missed by any seed, or its text is not in the sources any more.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.abspath(os.path.join(HERE, *[".."] * 4))
MODULES = ["spi", "toolkit", "host/engine", "spi-tck", "multiconnector"]
MAIN = "io.kvferry.multiconnector.composite.ChaosSeeds"
AT_A_TIME = "6"


def fixes():
    """Number, what it is for, and edits: (path, text, text without the fix)."""
    found, edits, target = [], [], None
    for line in open(os.path.join(HERE, "fixes.txt"), encoding="utf-8").read().split("\n"):
        if line.startswith("# "):
            number, what = line[2:].split(" ", 1)
            edits, target = [], None
            found.append((number, what, edits))
        elif line.startswith("--- "):
            edits.append((line[4:], [], []))
            target = edits[-1][1]
        elif line == "+++":
            target = edits[-1][2]
        elif line == "":
            target = None
        elif target is not None:
            target.append(line)
    return found


def class_path(file):
    if not file:
        file = os.path.join(tempfile.gettempdir(), "fixes-out.cp.%d" % os.getpid())
        subprocess.run(
            ["mvn", "-q", "-pl", "multiconnector", "dependency:build-classpath",
             "-Dmdep.outputFile=" + file], cwd=TREE, check=True)
    own = [os.path.join(TREE, module, "target", kind)
           for module in MODULES for kind in ("test-classes", "classes")]
    # of the test classes only multiconnector's: another worker host would be found first
    own = [path for path in own if not path.endswith("test-classes") or "multiconnector" in path]
    return ":".join(own + open(file, encoding="utf-8").read().split())


def java(tool):
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", tool) if home else tool


def patched(edits, folder, path):
    """Compiles the sources without the fix; false when its text is not there."""
    texts = {}
    for source, old, new in edits:
        text = texts.get(source) or open(os.path.join(TREE, source), encoding="utf-8").read()
        old = "\n".join(old)
        if old not in text:
            print("   not in %s:\n%s" % (source, old))
            return False
        texts[source] = text.replace(old, "\n".join(new), 1)
    files = []
    for source, text in texts.items():
        files.append(os.path.join(folder, os.path.basename(source)))
        with open(files[-1], "w", encoding="utf-8") as out:
            out.write(text)
    classes = os.path.join(folder, "classes")
    done = subprocess.run(
        [java("javac"), "-nowarn", "-Xlint:none", "-proc:none", "-parameters", "-cp", path,
         "-d", classes, *files], capture_output=True, text=True)
    if done.returncode:
        print("   does not compile:\n" + done.stdout + done.stderr)
    return done.returncode == 0


def interleavings(path, first, end):
    """A seed that fails and how, or nothing; several run at a time, the first of those that end."""
    run = subprocess.run(
        [java("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
         "--enable-native-access=ALL-UNNAMED", "-cp", path, MAIN, str(first), str(end), "1", AT_A_TIME],
        capture_output=True, text=True, errors="replace")
    if "interleavings of seeds" not in run.stdout:
        raise SystemExit("the interleavings did not run:\n" + run.stderr[-2000:])
    found = re.findall(r"^seed (\d+): (.*)", run.stdout, re.M)
    return min((int(seed), how) for seed, how in found) if found else None


def search(without, sound, first, end):
    """A seed counts if it fails without the fix, and passes with it: on a starved machine, where
    the engines' limits in real time pass, a seed may fail either way."""
    while first < end:
        failed = interleavings(without, first, end)
        if not failed:
            break
        seed, how = failed
        if not interleavings(sound, seed, seed + 1):
            return "seed %d (%s)" % (seed, how[:90])
        first = seed + 1
    return "not found"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seeds", nargs=2, type=int, default=[0, 300])
    arguments.add_argument("--class-path")
    arguments.add_argument("fix", nargs="*")
    given = arguments.parse_args()
    path = class_path(given.class_path)
    missed = 0
    for number, what, edits in fixes():
        if number not in given.fix and (given.fix or "(directed only" in what):
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            first = "text is not there, or does not compile"
            if patched(edits, folder, path):
                first = search(os.path.join(folder, "classes") + ":" + path, path, *given.seeds)
            missed += not first.startswith("seed")
            print("%-3s %-75s %s, %d s" % (number, what, first, time.monotonic() - begun), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
