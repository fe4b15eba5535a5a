# SPDX-License-Identifier: Apache-2.0
"""The page's commands for who builds and installs from source, as an ordinary user with sudo."""

ALICE = {"user": "alice"}


def declare(page):
    @page.test("tools/setup/packages.sh")
    def packages(m, command):
        said = m.says(command, "As root: apt-get install", status=1, **ALICE)
        m.do("sudo %s" % said.split("As root: ")[1].split("\n")[0], **ALICE)
        m.do(command, **ALICE)

    @page.test(['make -j"$(nproc)"', "make"])
    def build(m, parallel, plain):
        m.do(parallel, **ALICE)
        said = m.says(plain + " V=1", "", **ALICE).splitlines()
        # Without headers, as here, it says each time that there is no kernel module.
        made = [line for line in said if line.strip() and "Nothing to be done" not in line and "no kernel headers" not in line]
        assert not made, "what is made already is made again:\n" + "\n".join(made)

    @page.test("make help")
    def help_(m, command):
        m.says(command, "uninstall", **ALICE)

    @page.test("sudo make install")
    def install(m, command):
        m.do(command, **ALICE)
        m.do("getent group gpushare && gpushare --version && test -x /usr/local/sbin/gpushared", **ALICE)
        rooted = m.run("find /home/alice/gpushare -user root").stdout.split()
        assert not rooted, "alice can build no more, as root has made " + " ".join(rooted)

    @page.test("sudo make dkms-install")
    def dkms(m, command):
        m.says(command, "dkms is missing (package dkms)", status=2, **ALICE)
        m.do("sudo apt-get install dkms linux-headers-$(uname -r)", **ALICE)
        m.do(command, **ALICE)
        m.says("sudo dkms status", "gpushare/0.1.0, %s, x86_64: installed" % m.kernel, **ALICE)

    @page.test("sudo systemctl enable --now gpushared")
    def start(m, command):
        m.do(command, **ALICE)
        m.says("gpushare doctor", "ok      agent", status=1, **ALICE)
        m.says("sudo systemctl reload gpushared && gpushare status", "observe only", **ALICE)  # there is no GPU

    @page.test("make dist")
    def dist(m, command):
        m.do(command, **ALICE)

    @page.test(["make dkms-remove", "make uninstall"])
    def remove(m, module, programs):
        m.do("sudo %s && sudo %s" % (module, programs), **ALICE)
        left = [line for line in m.leftovers() if not line.startswith(("/etc/gpushare", "/var/lib/gpushare", "/run/gpushare"))]
        assert not left, "it is left behind:\n" + "\n".join(left)
        m.do("sudo %s PURGE=1" % programs, **ALICE)
        left = m.leftovers()
        assert not left, "PURGE=1 leaves it behind:\n" + "\n".join(left)
