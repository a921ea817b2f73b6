"""What the ends of a host's test links need, from the inventory and the facts of all hosts."""

import ipaddress

from ansible.errors import AnsibleFilterError

LINKS = ("client", "upstream", "self-test")


class End:
    """One end of a test link."""

    def __init__(self, host, link, interface, addresses):
        self.host, self.link, self.interface = host, link, interface
        self.addresses = [ipaddress.ip_interface(address) for address in addresses]

    def networks(self):
        return {address.network for address in self.addresses}

    def address_in(self, network):
        """The end's own address in a prefix, or None."""
        return next((address.ip for address in self.addresses if address.network == network), None)

    def ipv6_networks(self):
        return {network for network in self.networks() if network.version == 6}


def ends(host, variables):
    """The ends of all test links of a host."""
    found = []
    for link, end in (variables.get("dns64bench_links") or {}).items():
        if link not in LINKS:
            raise AnsibleFilterError("%s: unknown link '%s': must be one of %s" % (host, link, ", ".join(LINKS)))
        # A host may have several ends of links with the same name, like a DUT with two Measurers.
        for one in end if isinstance(end, list) else [end]:
            try:
                found.append(End(host, link, one["interface"], one["addresses"]))
            except (KeyError, ValueError) as error:
                raise AnsibleFilterError("%s: link %s: %s: an end has `interface` and `addresses` with prefix length" % (host, link, error)) from error
    return found


def mac(end, variables):
    """The MAC address of an end, by the facts of its host."""
    facts = variables.get("ansible_facts") or {}
    if not facts:
        raise AnsibleFilterError("no facts of %s, whose MAC addresses its neighbours need: run without --limit" % end.host)
    for fact in facts.values():
        if isinstance(fact, dict) and fact.get("device") == end.interface and fact.get("macaddress"):
            return fact["macaddress"]
    raise AnsibleFilterError("%s has no interface %s, only %s: correct dns64bench_links" % (end.host, end.interface, ", ".join(facts.get("interfaces", []))))


class Lab:
    """All hosts with a role."""

    def __init__(self, hostvars, names):
        # Including hosts outside the limit of the play: otherwise their neighbours and routes would be removed.
        names = [name for name in names if hostvars[name].get("dns64bench_roles")]
        self.hostvars = hostvars
        self.roles = {name: hostvars[name]["dns64bench_roles"] for name in names}
        self.ends = [end for name in names for end in ends(name, hostvars[name])]

    def of(self, host, link=None):
        return [end for end in self.ends if end.host == host and link in (None, end.link)]

    def peers(self, end):
        """The other ends in each of an end's prefixes."""
        for network in end.networks():
            for other in self.ends:
                if other.host != end.host and other.link == end.link and other.address_in(network):
                    yield other, network

    def neighbours(self, end):
        return {str(other.address_in(network)): mac(other, self.hostvars[other.host]) for other, network in self.peers(end)}

    def ways(self):
        """The ways of self-tests through the host of a DUT: (Measurer's end, DUT's client end, DUT's upstream end,
        authority's end). None where both are one host or have a link of their own."""
        for near in self.ends:
            if near.link != "client" or "measurer" not in self.roles[near.host]:
                continue
            for dut, _ in self.peers(near):
                for upstream in self.of(dut.host, "upstream"):
                    for far, _ in self.peers(upstream):
                        if far.host != near.host and not self.direct(near.host, far.host):
                            yield near, dut, upstream, far

    def direct(self, host, other):
        return any(peer.host == other for end in self.of(host, "self-test") for peer, _ in self.peers(end))

    def routes(self, end):
        """Prefix -> gateway: to the authority and back."""
        routes = {}
        for near, dut, upstream, far in self.ways():
            if end is near:
                add_routes(routes, near.ipv6_networks(), dut, upstream.ipv6_networks() & far.ipv6_networks())
            elif end is far:
                add_routes(routes, far.ipv6_networks(), upstream, dut.ipv6_networks() & near.ipv6_networks())
        return routes

    def forwards(self, host):
        return any(dut.host == host for _, dut, _, _ in self.ways())


def add_routes(routes, own, gateway, networks):
    """The first way wins where several DUTs share an upstream prefix."""
    via = next((gateway.address_in(network) for network in sorted(own) if gateway.address_in(network)), None)
    if via:
        for network in sorted(networks - own):
            routes.setdefault(str(network), str(via))


def lab_links(hostvars, host, names):
    """Settings of `lab_host` for all test links of a host."""
    lab = Lab(hostvars, names)
    mtu = hostvars[host].get("dns64bench_mtu")
    settings = []
    for end in lab.of(host):
        value = {
            "addresses": [str(address) for address in end.addresses],
            "neighbours": lab.neighbours(end),
            "routes": lab.routes(end),
        }
        if mtu:
            value["mtu"] = int(mtu)
        settings.append({"kind": "link", "name": end.interface, "value": value})
    if lab.forwards(host):
        settings.append({"kind": "forwarding", "name": "ipv6"})
    return settings


def lab_setting(name, kind, value):
    """One setting of `lab_host`."""
    return {"kind": kind, "name": name, "value": value}


def lab_offloads(names, offloads):
    """Settings of `lab_host` for each offload of each interface."""
    return [lab_setting(name + " " + feature, "feature", on) for name in names for feature, on in offloads.items()]


def lab_interfaces(hostvars, host):
    """The interfaces of all test links of a host."""
    return [end.interface for end in ends(host, hostvars[host])]


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {
            "lab_interfaces": lab_interfaces,
            "lab_links": lab_links,
            "lab_offloads": lab_offloads,
            "lab_setting": lab_setting,
        }
