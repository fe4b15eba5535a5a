#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of docs/install.md, as a person types it on a minimal machine: install_test.py BUILD CACHE [--release NAME] [--cold]

A command of the page of which this test knows nothing fails it, and so does one that it knows and the page does not have any more.
CACHE keeps the roots (make test-install). Compilers use this machine's ccache, if it has one, unless there is --cold.
Each command's output is in BUILD/install/logs. The last line is "N passed, N failed, N skipped".
"""
import argparse
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[3]
TREE = "/home/alice/gpushare"
PROGRAMS = ("apt-get dkms gpushare gpushared groupdel make man mokutil modinfo modprobe reboot rmmod sudo systemctl usermod "
            "tools/setup/packages.sh").split()


def commands_of_page():
    """What stands in the page's indented blocks, and what is quoted in its text and begins with a program's name."""
    text = (TOP / "docs/install.md").read_text()
    found = [re.sub(r"\s+#.*", "", line.strip()) for line in re.findall(r"^    (\S.*)$", text, re.M)]
    for quoted in re.findall(r"`([^`]+)`", re.sub(r"^    .*$", "", text, flags=re.M)):
        words = quoted.split()
        if words[0] in PROGRAMS or words[0].startswith(("/usr/lib/linux-kbuild", "/usr/libexec/")):
            found.append(quoted)
    # "gpushared" alone is the program's name; "make" is a command.
    return {command.removeprefix("sudo ") for command in found if " " in command or "/" in command or command in ("make", "reboot")}


class Page:
    def __init__(self, build, options):
        self.logs = build / "install/logs"
        self.options = options
        self.tests = []
        self.results = {"passed": [], "failed": [], "skipped": []}

    def test(self, commands, skip=None):
        """Declares what the function beneath does with these commands of the page."""
        commands = [commands] if isinstance(commands, str) else commands

        def declare(function):
            self.tests.append((commands, skip, function))
            return function
        return declare

    def run(self, tests, number, machine_):
        for commands, skip, function in tests:
            number += 1
            name = "; ".join(commands) or function.__doc__
            print("[%2d/%d] %s ... " % (number, len(self.tests), name), end="", flush=True)
            if skip:
                print("not run: " + skip)
                self.results["skipped"].append("%s: %s" % (name, skip))
                continue
            began = time.monotonic()
            log = self.logs / ("%02d" % number)
            try:
                with log.open("w") as file:
                    machine_.log = file
                    function(machine_, *commands)
                print("ok (%.0f s)" % (time.monotonic() - began), flush=True)
                self.results["passed"].append(name)
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                print("FAILED after %.0f s" % (time.monotonic() - began))
                tail = log.read_text(errors="replace").splitlines()[-25:]
                print("\n".join(["    " + line for line in [*tail, *str(error).splitlines()[-25:]]]), flush=True)
                self.results["failed"].append(name)
        return number

    def summary(self):
        for word in "skipped", "failed":
            for line in self.results[word]:
                print("%s: %s" % (word, line))
        print("%d passed, %d failed, %d skipped" % tuple(len(self.results[word]) for word in ("passed", "failed", "skipped")))
        return 0 if self.results["passed"] and not self.results["failed"] else 1


def run_page(page, build, parts):
    root = machine.base(page.options.release, page.options.cache)
    ccache = None
    if not page.options.cold and shutil.which("ccache"):
        ccache = subprocess.run(["ccache", "-k", "cache_dir"], capture_output=True, text=True).stdout.strip()
    number = 0
    for part in parts:
        print("on a minimal machine, %s%s:" % (page.options.release, " with ccache" if ccache else ""), flush=True)
        m = Logged(root, build / "install/machine", ccache)
        try:
            m.begin(ccache)
            number = page.run([test for test in page.tests if test[2].__module__ == part], number, m)
        finally:
            m.stop()


class Logged(machine.Machine):
    """A machine with the source tree, whose commands write to a log."""
    log = None

    def begin(self, ccache):
        self.run("useradd -m -s /bin/bash alice && echo 'alice ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/alice")
        files = subprocess.run("git ls-files -z | tar --null -T - -cf - | tar -C %s -xf -" % self.folder(), shell=True, cwd=TOP)
        assert files.returncode == 0, "the source tree cannot be copied"
        self.run("chown -R alice: %s" % TREE)
        if ccache:
            self.run("apt-get update -qq && apt-get install -qq ccache")
        # What `uname -r` says is a kernel of the release, for which there are headers; the one that runs is this machine's.
        self.run("apt-get update -qq")
        self.kernel = self.run("apt-cache depends linux-headers-amd64 linux-headers-generic 2>/dev/null | "
                               "sed -n 's/^ *Depends: linux-headers-//p' | head -n 1").stdout.strip()
        self.write("/usr/local/bin/uname", '#!/bin/sh\n[ "$*" != -r ] || { echo %s; exit; }\nexec /usr/bin/uname "$@"\n' % self.kernel)
        self.run("chmod +x /usr/local/bin/uname")

    def folder(self):
        folder = self.path(TREE)
        folder.mkdir(parents=True)
        return folder

    def write(self, path, text):
        self.path(path).write_text(text)

    def read(self, path):
        return self.path(path).read_text()

    def do(self, command, **more):
        """Runs it as root in the source tree, its output in the log; it must succeed."""
        print("$ " + command, file=self.log, flush=True)
        return self.run(command, **{"folder": TREE, "log": self.log, **more})

    def says(self, command, text, status=0, **more):
        """Runs it: it ends with this status, and its output has this text."""
        said = self.run(command, check=False, **{"folder": TREE, **more})
        print("$ %s\n%s" % (command, said.stdout), file=self.log, flush=True)
        assert said.returncode == status, "%s: status %d, not %d" % (command, said.returncode, status)
        assert text in said.stdout, "%s does not say '%s'" % (command, text)
        return said.stdout

    def leftovers(self):
        """What of gpushare is on the machine, outside the source tree and of packages' own lists."""
        found = self.run("find / -xdev \\( -path /home -o -path /proc -o -path /var/lib/dpkg -o -path /var/lib/dkms -o -path /var/cache -o "
                         "-path /var/log -o -path /tmp \\) -prune -o -iname '*gpushare*' -print; ls -d /run/gpushare /dev/shm/gpushare* "
                         "2>/dev/null; systemctl list-units --all --plain --no-legend '*gpushare*'", check=False).stdout.split("\n")
        return [line for line in found if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("--release", default="bookworm")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--only", choices=["from_packages", "from_source"])
    options = parser.parse_args()
    build = options.build.resolve()
    page = Page(build, options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the machine goes first
    if reason := machine.missing():
        print("install_test.py:1: Skipped\n%s\n0 passed, 0 failed, 1 skipped" % reason)
        return 1
    shutil.rmtree(page.logs, ignore_errors=True)
    page.logs.mkdir(parents=True)
    import from_packages
    import from_source
    from_packages.declare(page)
    from_source.declare(page)
    known = {command.removeprefix("sudo ") for commands, _, _ in page.tests for command in commands}
    for wrong, what in (commands_of_page() - known, "is in docs/install.md and not in this test"), \
            (known - commands_of_page(), "is not in docs/install.md any more"):
        for command in sorted(wrong):
            page.results["failed"].append("`%s` %s" % (command, what))
    run_page(page, build, [options.only] if options.only else ["from_packages", "from_source"])
    return page.summary()


if __name__ == "__main__":
    sys.exit(main())
