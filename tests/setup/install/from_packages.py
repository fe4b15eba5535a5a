# SPDX-License-Identifier: Apache-2.0
"""The page's commands for Debian packages, up to their removal. All as root."""
import json
import pathlib
import subprocess
import time

LATER = pathlib.Path(__file__).resolve().parent / "later_version.sh"
FIRMWARE = "needs a machine's firmware"


# The agent on a simulated GPU, which is the machine's as a driver would be: it outlives the agent.
SIMULATED = """[Service]
ExecStart=
ExecStart=/usr/sbin/gpushared --sim=/run/simulated/socket --kept-config=/var/lib/gpushare/gpushare.toml.kept \\
  --kept-roster=/var/lib/gpushare/roster.json
ReadWritePaths=/run/simulated
"""


def simulate(m):
    m.do("mkdir -p /etc/systemd/system/gpushared.service.d /run/simulated")
    m.write("/etc/systemd/system/gpushared.service.d/sim.conf", SIMULATED)
    m.do("systemctl daemon-reload; systemd-run --unit=sim gpushare-sim --socket /run/simulated/socket; "
         "until [ -S /run/simulated/socket ]; do sleep 0.1; done; systemctl restart gpushared")


def status(m):
    return json.loads(m.run("gpushare status --json").stdout)


def await_states(m, wanted, limit_s=30):
    """Waits until the tenants' processes are in these states, and returns the tenants by name."""
    for _ in range(limit_s * 5):
        seen = status(m)
        states = {process["tenant"]: process["state"] for process in seen["processes"]}
        if all(states.get(tenant) in allowed for tenant, allowed in wanted.items()):
            return {tenant["name"]: tenant for tenant in seen["tenants"]}
        time.sleep(0.2)
    raise AssertionError("the programs are not %s but %s" % (wanted, states))


def put_under_load(m):
    """Two programs on a simulated GPU, of which a person has frozen one. They are in no unit of the agent's."""
    m.do("make build/bin/workloads/endless")
    for name, weight in ("free", 300), ("held", 100):
        m.do("gpushare set --create %s weight=%d && systemd-run --unit=load-%s -E GPUSHARE_SIM=/run/simulated/socket "
             "-E LD_LIBRARY_PATH=/usr/lib/gpushare/sim gpushare run --tenant %s -- %s/build/bin/workloads/endless --seconds 3600"
             % (name, weight, name, name, "/home/alice/gpushare"))
    await_states(m, {"free": ["running", "waiting"], "held": ["running", "waiting"]})
    m.do("gpushare freeze --tenant held")
    return await_states(m, {"free": ["running"], "held": ["frozen-user"]})


def change_layout(m):
    """The agent finds a control plane as a version with another layout would have left it."""
    m.do("gpushare set --create later weight=70")
    m.do("systemctl stop gpushared && printf '\\143' | dd of=/run/gpushare/region bs=1 seek=8 conv=notrunc status=none && "
         "systemctl start gpushared")
    m.do("test -e /run/gpushare/region.unread")
    m.says("stat -c %a:%U /var/lib/gpushare/roster.json", "600:root")


def declare(page):
    @page.test("tools/setup/packages.sh --kernel")
    def packages(m, command):
        m.do(command)
        m.do(command)  # there is nothing left to install

    @page.test("make deb")
    def deb(m, command):
        m.do(command)

    @page.test("apt-get install linux-headers-$(uname -r)")
    def headers(m, command):
        m.do(command)

    @page.test("apt-get install ./build/deb/gpushare_0.1.0_amd64.deb ./build/deb/gpushare-dkms_0.1.0_all.deb")
    def install(m, command):
        m.do(command)
        m.do("systemctl is-active gpushared && systemctl is-enabled gpushared && getent group gpushare")
        m.says("dkms status", "gpushare/0.1.0, %s, x86_64: installed" % m.kernel)
        m.says("modprobe -n -v -S %s gpushare" % m.kernel, "gpushare.ko")
        m.says("gpushare --version", "0.1.0")

    @page.test("gpushare doctor")
    def doctor(m, command):
        said = m.says(command, "ok      agent", status=1)  # there is no driver
        assert "fail    NVIDIA driver" in said, "it finds a driver"
        simulate(m)

    @page.test("usermod -aG gpushare alice")
    def group(m, command):
        m.says("gpushare set --create early weight=10", "Permission denied", status=1, user="alice")
        m.do(command)
        m.do("gpushare set --create lab weight=250", user="alice")
        m.says("gpushare tenants", "lab", user="alice")

    @page.test("man -l docs/gpushare.toml.5")
    def manual(m, command):
        m.says(command + " | cat", "THE SECTION")

    @page.test(["gpushared --check-config", "systemctl reload gpushared"])
    def configuration(m, check, reload):
        before = m.read("/etc/gpushare/gpushare.toml")
        m.write("/etc/gpushare/gpushare.toml", before + '\n[tenant.file]\nweight = 300\nmatch = [{ cgroup = "slurm/*" }]\n')
        m.says(check, "correct")
        m.says(check, "slurm/*")  # the first / is missing: it is warned of
        m.do(reload)
        m.says("gpushare tenants", "file")
        m.write("/etc/gpushare/gpushare.toml", before + "\n[tenant.file]\nweight = 0\n[tenant.lost]\nmax = 7\n")
        said = m.says(check, "weight: '0' is not allowed", status=2)
        assert "tenant.lost" in said, "it does not name every mistake"
        m.says(reload, "failed", status=1)
        m.says("gpushare tenants", "300")
        m.do("systemctl restart gpushared && systemctl is-active gpushared")
        m.says("gpushare tenants", "300")
        m.says("gpushare doctor", "is not allowed", status=1)
        m.write("/etc/gpushare/gpushare.toml", before + "\n[tenant.file]\nweight = 300\n")
        m.do(reload)

    @page.test("systemctl restart gpushared")
    def restart(m, command):
        m.do(command)
        m.says("gpushare tenants", "250")  # what was set at run time is taken over

    @page.test(["apt-get install openssl mokutil", "dkms build --force gpushare/0.1.0 && dkms install --force gpushare/0.1.0",
                "modinfo -F signer gpushare"])
    def signed(m, programs, again, signer):
        m.do(programs)
        m.do(again)
        # modinfo asks the kernel that runs, which is another one here.
        m.says(signer.replace("gpushare", "-k %s gpushare" % m.kernel), "DKMS module signing key")

    @page.test(["make kmod", "/usr/lib/linux-kbuild-6.1/scripts/sign-file sha256 KEY CERTIFICATE build/kmod/gpushare.ko"])
    def by_hand(m, make, sign):
        m.do(make)
        m.do(sign.replace("KEY", "/var/lib/dkms/mok.key").replace("CERTIFICATE", "/var/lib/dkms/mok.pub"))
        m.says("modinfo -F signer build/kmod/gpushare.ko", "DKMS module signing key")

    @page.test("make rpm")
    def rpm(m, command):
        m.says(command, "rpmbuild is missing", status=2)
        m.do("apt-get install rpm")
        m.do(command)
        m.says("rpm -qlp build/rpm/RPMS/x86_64/gpushare-0.1.0-1.x86_64.rpm", "/usr/sbin/gpushared")

    page.test(["make test-install", "make test-install RELEASE=noble"], skip="this is it")(lambda: None)
    page.test("make test-kernel-matrix", skip="it starts virtual machines, and is a test of its own")(lambda: None)
    page.test(["mokutil --sb-state", "mokutil --import /var/lib/dkms/mok.pub", "reboot",
               "mokutil --test-key /var/lib/dkms/mok.pub"], skip=FIRMWARE)(lambda: None)
    page.test(["modprobe gpushare", "rmmod gpushare"], skip="no module can be loaded into this kernel; tests/kernel/guest/module.sh does it in QEMU")(lambda: None)

    @page.test("apt-get install ./gpushare_NEW_amd64.deb ./gpushare-dkms_NEW_all.deb")
    def upgrade(m, command):
        m.do("echo '# mine' >>/etc/gpushare/gpushare.toml; systemctl enable --now gpushare-exporter")
        before = put_under_load(m)
        deb = m.path("/home/alice/gpushare/build/deb")
        for name in "gpushare_0.1.0_amd64.deb", "gpushare-dkms_0.1.0_all.deb":
            subprocess.run([LATER, deb / name, deb], check=True)
        m.do(command.replace("NEW", "0.1.0.1"), folder="/home/alice/gpushare/build/deb")
        m.do("systemctl is-active gpushared gpushare-exporter")
        # Nothing is frozen that was not, what a person froze is, and settings and counts go on.
        after = await_states(m, {"free": ["running"], "held": ["frozen-user"]})
        for name in "free", "held", "lab", "file":
            for key in "weight", "is_frozen_by_user":
                assert after[name][key] == before[name][key], "%s of %s was lost" % (key, name)
        used = [tenants["free"]["gpus"][0]["gpu_time_ns"] for tenants in (before, after)]
        assert used[1] > used[0], "the count of GPU time began anew: %s" % used
        held = [tenants["held"]["gpus"][0]["gpu_time_ns"] for tenants in (before, after)]
        assert held[1] - held[0] < 50e6, "what was frozen ran for %s" % held
        change_layout(m)
        kept = await_states(m, {"free": ["running"], "held": ["frozen-user"]})
        for name in "free", "held", "lab", "file":
            for key in "weight", "is_frozen_by_user":
                assert kept[name][key] == before[name][key], "%s of %s was lost" % (key, name)
        assert kept["later"]["weight"] == 70, "what was set last is lost"
        m.says("tail -n 1 /etc/gpushare/gpushare.toml", "# mine")
        m.says("dkms status", "gpushare/0.1.0.1, %s" % m.kernel)
        assert "gpushare/0.1.0," not in m.says("dkms status", ""), "DKMS keeps the older module"

    page.test("systemctl stop gpushare-mps", skip="there is no MPS without a GPU; tests/setup/package_test.sh looks that it is told to end")(lambda: None)

    @page.test(["/usr/libexec/gpushare-module reload", "/usr/libexec/gpushare-module unload"])
    def module(m, reload, unload):
        # No module can be loaded here; tests/kernel/guest/upgrade.sh does it in QEMU.
        m.says(reload, "no gpushare.ko is installed for this kernel; nothing was changed", status=1)
        m.do(unload)
        m.do("systemctl is-active gpushared")

    @page.test("apt-get purge gpushare gpushare-dkms")
    def purge(m, command):
        m.says(command, "groupdel gpushare")
        # The programs run on, also the one that was frozen.
        m.do("systemctl is-active load-free load-held sim; systemctl stop load-free load-held sim")
        m.do("rm -r /etc/systemd/system/gpushared.service.d")
        left = m.leftovers()
        assert not left, "it is left behind:\n" + "\n".join(left)

    @page.test("groupdel gpushare")
    def no_group(m, command):
        m.do(command)
