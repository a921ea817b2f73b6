"""Who is connected to whom, by literal inventories. `.ci/ansible` runs it."""

import os
import sys
import unittest

from ansible.errors import AnsibleFilterError

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "filter_plugins"))
from lab_links import lab_links  # noqa: E402  pylint: disable=wrong-import-position


def host(roles, facts=True, **links):
    """A host whose interfaces have MAC addresses that name them."""
    ends = {name.replace("_", "-"): {"interface": interface, "addresses": addresses.split()} for name, (interface, addresses) in links.items()}
    known = {interface: {"device": interface, "macaddress": "mac of " + interface} for interface, _ in links.values()}
    return {"dns64bench_roles": roles.split(), "dns64bench_links": ends, "ansible_facts": known if facts else {}}


def settings(lab, name):
    """The settings of a host by their names."""
    return {setting["name"]: setting.get("value") for setting in lab_links(lab, name, sorted(lab))}


def three_devices(**more):
    return {
        "gen": host("measurer", client=("g0", "2001:2:0:1::1/64")),
        "dut": host("dut", client=("d0", "2001:2:0:1::2/64"), upstream=("d1", "2001:2:0:2::1/64 198.18.0.1/24")),
        "auth": host("authority", upstream=("a0", "2001:2:0:2::2/64 198.18.0.2/24")),
        **more,
    }


class LabLinks(unittest.TestCase):
    """What the filter gives."""

    def test_the_dut_forwards_between_measurer_and_authority(self):
        lab = three_devices()
        self.assertEqual(settings(lab, "gen")["g0"]["routes"], {"2001:2:0:2::/64": "2001:2:0:1::2"})
        self.assertEqual(settings(lab, "auth")["a0"]["routes"], {"2001:2:0:1::/64": "2001:2:0:2::1"})
        self.assertIn("ipv6", settings(lab, "dut"))
        self.assertNotIn("ipv6", settings(lab, "gen"))

    def test_neighbours_are_those_in_the_same_prefix(self):
        lab = three_devices(other=host("measurer", client=("o0", "2001:2:0:11::1/64")))
        dut = settings(lab, "dut")
        self.assertEqual(dut["d0"]["neighbours"], {"2001:2:0:1::1": "mac of g0"})
        self.assertEqual(dut["d1"]["neighbours"], {"2001:2:0:2::2": "mac of a0", "198.18.0.2": "mac of a0"})
        self.assertEqual(settings(lab, "other")["o0"]["neighbours"], {})

    def test_a_self_test_link_needs_no_forwarding(self):
        lab = three_devices(
            gen=host("measurer", client=("g0", "2001:2:0:1::1/64"), self_test=("g1", "2001:2:0:3::1/64")),
            auth=host("authority", upstream=("a0", "2001:2:0:2::2/64"), self_test=("a1", "2001:2:0:3::2/64")),
        )
        self.assertEqual(settings(lab, "gen")["g0"]["routes"], {})
        self.assertEqual(settings(lab, "gen")["g1"]["neighbours"], {"2001:2:0:3::2": "mac of a1"})
        self.assertNotIn("ipv6", settings(lab, "dut"))

    def test_each_of_two_authorities_has_routes_over_its_own_link(self):
        dut = host("dut", client=("d0", "2001:2:0:1::2/64"), upstream=("d1", "2001:2:0:2::1/64"))
        dut["dns64bench_links"]["upstream"] = [dut["dns64bench_links"]["upstream"], {"interface": "d2", "addresses": ["2001:2:0:12::1/64"]}]
        dut["ansible_facts"]["d2"] = {"device": "d2", "macaddress": "mac of d2"}
        lab = three_devices(dut=dut, auth2=host("authority", upstream=("b0", "2001:2:0:12::2/64")))
        ways = {"2001:2:0:2::/64": "2001:2:0:1::2", "2001:2:0:12::/64": "2001:2:0:1::2"}
        self.assertEqual(settings(lab, "gen")["g0"]["routes"], ways)
        self.assertEqual(settings(lab, "auth2")["b0"]["routes"], {"2001:2:0:1::/64": "2001:2:0:12::1"})
        self.assertEqual(settings(lab, "dut")["d2"]["neighbours"], {"2001:2:0:12::2": "mac of b0"})

    def test_two_devices_need_no_routes(self):
        lab = {
            "tester": host("measurer authority", client=("t0", "2001:2:0:1::1/64"), upstream=("t1", "2001:2:0:2::2/64")),
            "dut": host("dut", client=("d0", "2001:2:0:1::2/64"), upstream=("d1", "2001:2:0:2::1/64")),
        }
        self.assertEqual([value["routes"] for value in settings(lab, "tester").values()], [{}, {}])
        self.assertNotIn("ipv6", settings(lab, "dut"))

    def test_hosts_without_a_role_are_ignored(self):
        lab = three_devices(printer={})
        self.assertEqual(settings(lab, "gen")["g0"]["neighbours"], {"2001:2:0:1::2": "mac of d0"})

    def test_errors_name_host_and_remedy(self):
        for broken, message in (
            (host("dut", uplink=("d0", "2001:2:0:1::2/64")), "dut: unknown link 'uplink'"),
            (host("dut", client=("d0", "2001:2:0:1::2/129")), "dut: link client: .*with prefix length"),
            (host("dut", facts=False, client=("d0", "2001:2:0:1::2/64")), "no facts of dut.*without --limit"),
        ):
            with self.assertRaisesRegex(AnsibleFilterError, message):
                settings(three_devices(dut=broken), "gen")


if __name__ == "__main__":
    unittest.main()
