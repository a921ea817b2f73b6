"""The kinds of settings that the module lab_host knows: how each is read, compared and written."""

import glob
import json
import os
import shutil
import subprocess


class Unsupported(Exception):
    """This host does not have the setting; the reason."""


class Refused(Exception):
    """The setting must not be made here; the reason and the remedy."""


def run(*words):
    """Standard output of a command; without the program or its success there is no such setting."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ, LC_ALL="C"))
    except FileNotFoundError as error:
        raise Unsupported(words[0] + " is not installed") from error
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Unsupported("`%s`: %s" % (" ".join(words), reason[-1] if reason else "failed"))
    return done.stdout


def read(path):
    """The content of a small file of the kernel, in one line."""
    try:
        with open(path, encoding="utf-8") as file:
            return " ".join(file.read().split())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Unsupported("this kernel or network namespace has no " + path) from error
    except OSError as error:
        raise Unsupported(path + ": " + error.strerror) from error


def write(path, value):
    """Writes a small file of the kernel."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(value))
    except OSError as error:
        raise Unsupported("%s does not take %s: %s" % (path, value, error.strerror)) from error


class Setting:
    """One setting of one kind. `read` gives what it is as JSON, `write` sets it to such a value."""

    # Whether a reboot of the host undoes it.
    VOLATILE = True
    # Whether a host is unusable without it.
    NEEDED = False

    def __init__(self, name, value=None, **more):
        self.name, self.value, self.more = name, value, more

    def wanted(self, current):
        """What it shall be, given what it is."""
        del current
        return self.value


class File(Setting):
    """A file of the kernel with one value."""

    def path(self):
        return self.name

    def read(self):
        current = read(self.path())
        if not os.access(self.path(), os.W_OK) or not writable(self.path()):
            raise Unsupported(self.path() + " is read-only here")
        return current

    def write(self, value):
        write(self.path(), value)

    def wanted(self, current):
        value = " ".join(str(self.value).split())
        if self.more.get("at_least") and int(current) >= int(value):
            return current
        return value


def writable(path):
    """Whether the mode of a file has it written at all: root passes `access` on any."""
    return bool(os.stat(path).st_mode & 0o222)


class Sysctl(File):
    """A kernel parameter. A name with a slash is a path already: names of interfaces may have dots."""

    def path(self):
        return "/proc/sys/" + (self.name if "/" in self.name else self.name.replace(".", "/"))


class Governor(Setting):
    """The frequency governor of all processors."""

    PATHS = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"

    def read(self):
        current = {path: read(path) for path in sorted(glob.glob(self.PATHS))}
        if not current:
            raise Unsupported("no frequency governor (a virtual machine?)")
        for path in current:
            offered = read(os.path.join(os.path.dirname(path), "scaling_available_governors"))
            if self.value is not None and self.value not in offered.split():
                raise Unsupported("no governor '%s', only %s" % (self.value, offered))
        return current

    def wanted(self, current):
        return dict.fromkeys(current, self.value)

    def write(self, value):
        for path, governor in value.items():
            write(path, governor)


class Irq(Setting):
    """The processors that handle an interface's interrupts, one after the other in the given order."""

    def read(self):
        numbers = sorted(int(os.path.basename(path)) for path in glob.glob("/sys/class/net/%s/device/msi_irqs/*" % self.name))
        if not numbers:
            raise Unsupported("no interrupts of its own")
        # A driver-managed interrupt refuses other processors.
        return {"/proc/irq/%d/smp_affinity_list" % number: read("/proc/irq/%d/smp_affinity_list" % number) for number in numbers}

    def wanted(self, current):
        cpus = cpu_list(self.value)
        return {path: str(cpus[index % len(cpus)]) for index, path in enumerate(current)}

    def write(self, value):
        for path, cpus in value.items():
            write(path, cpus)


def cpu_list(text):
    """The processors of a list such as `2-5,8`."""
    cpus = []
    for part in str(text).split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


class Forwarding(Setting):
    """IPv6 forwarding. Linux has one switch for all interfaces. Turned on it also drops default routes that
    routers have announced, unless the interface has `accept_ra` 2 (ip-sysctl.rst)."""

    ROOT = "/proc/sys/net/ipv6/conf"

    def read(self):
        state = {"all": read(self.ROOT + "/all/forwarding")}
        for key in ("forwarding", "accept_ra"):
            state[key] = {name: read("%s/%s/%s" % (self.ROOT, name, key)) for name in sorted(os.listdir(self.ROOT)) if name != "all"}
        return state

    def wanted(self, current):
        wanted = json.loads(json.dumps(current))
        wanted["all"] = "1"
        if current["all"] != "1":
            wanted["forwarding"] = dict.fromkeys(current["forwarding"], "1")
        for name, accept in current["accept_ra"].items():
            if accept == "1" and name not in ("default", "lo"):
                wanted["accept_ra"][name] = "2"
        return wanted

    def write(self, value):
        if value["all"] == "1":
            self.write_each("accept_ra", value)
        write(self.ROOT + "/all/forwarding", value["all"])
        self.write_each("forwarding", value)
        if value["all"] != "1":
            self.write_each("accept_ra", value)

    def write_each(self, key, value):
        for name, word in value[key].items():
            path = "%s/%s/%s" % (self.ROOT, name, key)
            # The interface may have disappeared since.
            if os.path.exists(path) and read(path) != word:
                write(path, word)


class Link(Setting):
    """Everything of a test link's end that is of the network layer. `value` has `addresses` ("addr/len"),
    `neighbours` ({address: MAC}), `routes` ({prefix: gateway}) and perhaps `mtu`; nothing else stays on it."""

    NEEDED = True

    def read(self):
        if not os.path.isdir("/sys/class/net/" + self.name):
            there = ", ".join(sorted(set(os.listdir("/sys/class/net")) - {"bonding_masters"}))
            raise Refused("no interface %s, only %s: correct dns64bench_links" % (self.name, there))
        routes = self.routes()
        self.refuse_management(routes)
        link = json.loads(run("ip", "-json", "link", "show", "dev", self.name))[0]
        # Leases are renewed by their client.
        addresses = [
            "%s/%s" % (info["local"], info["prefixlen"])
            for info in json.loads(run("ip", "-json", "address", "show", "dev", self.name))[0]["addr_info"]
            if not info.get("dynamic") and "local" in info
        ]
        return {
            "up": "UP" in link["flags"],
            "mtu": link["mtu"],
            "addr_gen_mode": read(self.conf("addr_gen_mode")),
            "accept_ra": read(self.conf("accept_ra")),
            "addresses": sorted(addresses),
            "neighbours": self.neighbours(),
            "routes": routes,
        }

    def neighbours(self):
        """The MAC address of each permanent neighbour."""
        entries = json.loads(run("ip", "-json", "neigh", "show", "dev", self.name, "nud", "permanent"))
        return {entry["dst"]: entry["lladdr"] for entry in entries if "lladdr" in entry}

    def routes(self):
        """Routes over the interface but for those that come with its addresses, as words of `ip route`."""
        lines = []
        for family in ("-4", "-6"):
            for line in run("ip", family, "route", "show", "dev", self.name).splitlines():
                if "proto kernel" not in line:
                    lines.append(family + " " + " ".join(line.replace(" linkdown", "").replace(" pref medium", "").split()))
        return sorted(lines)

    def refuse_management(self, routes):
        """Nobody shall lock themselves out of a host."""
        connection = os.environ.get("SSH_CONNECTION", "").split()
        held = run("ip", "-brief", "address", "show", "dev", self.name)
        # The format is `client port server port`; with sudo the variable may be missing, and the route remains.
        if len(connection) == 4 and any(word.split("/")[0] == connection[2] for word in held.split()[2:]):
            raise Refused("%s has the address of this SSH connection: use another interface for tests" % self.name)
        if any(route.split()[1] == "default" for route in routes):
            raise Refused("%s has a default route: it is no test link; use another interface, or remove the route" % self.name)

    def conf(self, key):
        return "/proc/sys/net/ipv6/conf/%s/%s" % (self.name, key)

    def wanted(self, current):
        value = self.value
        routes = ["%s %s via %s metric 1024" % ("-6" if ":" in prefix else "-4", prefix, gateway) for prefix, gateway in value.get("routes", {}).items()]
        return {
            "up": True,
            "mtu": value.get("mtu") or current["mtu"],
            # Without link-local addresses and router solicitations only the benchmark sends there.
            "addr_gen_mode": "1",
            "accept_ra": "0",
            "addresses": sorted(value["addresses"]),
            "neighbours": value.get("neighbours", {}),
            "routes": sorted(routes),
        }

    def write(self, value):
        name = self.name
        now = self.read()
        for key in ("addr_gen_mode", "accept_ra"):
            if now[key] != value[key]:
                write(self.conf(key), value[key])
        if now["mtu"] != value["mtu"]:
            run("ip", "link", "set", "dev", name, "mtu", str(value["mtu"]))
        if value["up"] and not now["up"]:
            run("ip", "link", "set", "dev", name, "up")
        # The settings before may have added or removed link-local addresses.
        now = self.read()
        for route in sorted(set(now["routes"]) - set(value["routes"])):
            family, *words = route.split()
            run("ip", family, "route", "delete", *words, "dev", name)
        # Before the addresses, because removing the last one of a family removes the neighbours.
        for neighbour in sorted(set(now["neighbours"]) - set(value["neighbours"])):
            run("ip", "neigh", "delete", neighbour, "dev", name)
        for address in sorted(set(now["addresses"]) - set(value["addresses"])):
            run("ip", "address", "delete", address, "dev", name)
        now["neighbours"] = self.neighbours()
        for address in sorted(set(value["addresses"]) - set(now["addresses"])):
            run("ip", "address", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
        for neighbour, mac in value["neighbours"].items():
            if now["neighbours"].get(neighbour) != mac:
                run("ip", "neigh", "replace", neighbour, "lladdr", mac, "dev", name, "nud", "permanent")
        # A removed address removed its routes.
        for route in sorted(set(value["routes"]) - set(self.routes())):
            family, *words = route.split()
            run("ip", family, "route", "replace", *words, "dev", name)
        if now["up"] and not value["up"]:
            run("ip", "link", "set", "dev", name, "down")


class Channels(Setting):
    """Numbers of queues, as `ethtool --set-channels` has them; `max` is as many as the hardware has."""

    def parts(self):
        maximum, _, current = run("ethtool", "--show-channels", self.name).partition("Current hardware settings:")
        return numbers(maximum), numbers(current)

    def read(self):
        current = self.parts()[1]
        if not current:
            raise Unsupported("one queue")
        return current

    def wanted(self, current):
        maximum = self.parts()[0]
        # Combined queues if supported, otherwise receive queues and as many send queues.
        keys = ["combined"] if maximum.get("combined") else ["rx", "tx"]
        changed = {}
        for key in keys:
            if maximum.get(key):
                changed[key] = maximum[key] if self.value == "max" else min(int(self.value), maximum[key])
        return dict(current, **changed)

    def write(self, value):
        now = self.read()
        words = [word for key, number in value.items() if now.get(key) != number for word in (key, str(number))]
        if words:
            run("ethtool", "--set-channels", self.name, *words)


def numbers(text):
    """`RX: 8` and the like, without those that are `n/a` or 0."""
    pairs = (line.split(":") for line in text.splitlines() if line.count(":") == 1)
    return {key.strip().lower(): int(value) for key, value in pairs if value.strip().isdigit() and int(value)}


class Spread(Setting):
    """Over how many queues the flows are spread, in equal shares."""

    def read(self):
        # `    8:      0     1     2`: the first of eight entries, and the queues of all eight.
        rows = [line.partition(":") for line in run("ethtool", "--show-rxfh-indir", self.name).splitlines()]
        table = [int(queue) for first, _, queues in rows if first.strip().isdigit() for queue in queues.split()]
        queues = max(table, default=0) + 1
        if not table or table != [index % queues for index in range(len(table))]:
            raise Unsupported("its table has no equal shares, and could not be restored")
        return queues

    def write(self, value):
        run("ethtool", "--set-rxfh-indir", self.name, "equal", str(value))


class FlowHash(Setting):
    """What of a packet says which queue takes it. `name` is `INTERFACE FLOW`, as `ens1f0 udp6`; `value` letters of
    ethtool(8): `sdfn` are addresses and ports."""

    LETTERS = (("IP SA", "s"), ("IP DA", "d"), ("L4 bytes 0 & 1", "f"), ("L4 bytes 2 & 3", "n"), ("VLAN", "v"), ("L3 proto", "t"))

    def read(self):
        interface, flow = self.name.split()
        text = run("ethtool", "--show-nfc", interface, "rx-flow-hash", flow)
        return "".join(letter for words, letter in self.LETTERS if words in text)

    def write(self, value):
        interface, flow = self.name.split()
        run("ethtool", "--config-nfc", interface, "rx-flow-hash", flow, value or "r")


class Feature(Setting):
    """An offload. `name` is `INTERFACE FEATURE` with the long name of `ethtool --show-features`; `value` a boolean."""

    def read(self):
        interface, feature = self.name.split()
        for line in run("ethtool", "--show-features", interface).splitlines():
            key, _, state = line.strip().partition(": ")
            if key == feature:
                on = state.split()[0] == "on"
                if "[fixed]" in state and on != self.value:
                    raise Unsupported("fixed to " + state.split()[0])
                return on
        raise Unsupported("no such offload")

    def write(self, value):
        interface, feature = self.name.split()
        run("ethtool", "--features", interface, feature, "on" if value else "off")


class Service(Setting):
    """A unit of systemd: whether it starts with the host and whether it runs. `value` is a boolean for both."""

    VOLATILE = False

    def read(self):
        if not os.path.isdir("/run/systemd/system"):
            raise Unsupported("this host has no systemd")
        words = ("systemctl", "show", "--property=LoadState,UnitFileState,ActiveState", self.name)
        state = dict(line.split("=", 1) for line in run(*words).splitlines())
        if state["LoadState"] != "loaded":
            raise Unsupported("no such unit")
        # Units that are static or masked have no state to change.
        return {"enabled": state["UnitFileState"], "active": state["ActiveState"] in ("active", "activating", "reloading")}

    def wanted(self, current):
        enabled = current["enabled"]
        if enabled in ("enabled", "disabled"):
            enabled = "enabled" if self.value else "disabled"
        return {"enabled": enabled, "active": self.value}

    def write(self, value):
        now = self.read()
        if now["enabled"] != value["enabled"]:
            run("systemctl", "enable" if value["enabled"] == "enabled" else "disable", self.name)
        if now["active"] != value["active"]:
            run("systemctl", "start" if value["active"] else "stop", self.name)


class Path(Setting):
    """A file that another module is about to change: recorded alone, with a copy."""

    VOLATILE = False

    def __init__(self, name, value=None, **more):
        super().__init__(name, value, **more)
        self.directory = None

    def read(self):
        if not os.path.lexists(self.name):
            return None
        return self.copy_name()

    def copy_name(self):
        return os.path.join(self.directory, "files", self.name.strip("/").replace("/", "-"))

    def keep(self):
        if os.path.lexists(self.name):
            os.makedirs(os.path.dirname(self.copy_name()), mode=0o700, exist_ok=True)
            shutil.copy2(self.name, self.copy_name(), follow_symlinks=False)

    def write(self, value):
        if value is not None:
            shutil.copy2(value, self.name, follow_symlinks=False)
        elif os.path.lexists(self.name):
            os.remove(self.name)


class Package(Setting):
    """A Debian package that another module is about to install: recorded alone."""

    VOLATILE = False

    def read(self):
        return None

    def keep(self):
        """Nothing: it is missing."""

    def write(self, value):
        """The module that installed it removes it."""


KINDS = {
    "sysctl": Sysctl,
    "file": File,
    "governor": Governor,
    "irq": Irq,
    "forwarding": Forwarding,
    "link": Link,
    "channels": Channels,
    "spread": Spread,
    "flow_hash": FlowHash,
    "feature": Feature,
    "service": Service,
    "path": Path,
    "package": Package,
}
RECORDED_ONLY = ("path", "package")
