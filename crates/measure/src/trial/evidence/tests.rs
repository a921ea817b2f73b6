use super::*;
use crate::machine::counters::CounterReading;

/// A counter of a host: interface ("" for the host), layer, name, value.
type Row = (&'static str, Layer, &'static str, u64);

fn change(role: &'static str, shared: bool, rows: &[Row]) -> CounterChange {
    let counted = rows.iter().map(|(link, layer, name, count)| {
        let link = (!link.is_empty()).then(|| (*link).to_owned());
        let counter = Counter {
            link,
            ..Counter::of_host(layer.clone(), name)
        };
        (counter, *count)
    });
    let reading: CounterReading = counted.chain(of_host(rows)).collect();
    CounterChange {
        of: role.parse().unwrap(),
        shared,
        is_unread: false,
        least: reading.clone(),
        most: reading,
    }
}

/// Counters of the host, which include those of its interfaces.
fn of_host(rows: &[Row]) -> impl Iterator<Item = (Counter, u64)> {
    let sums = ["InReceives", "InDelivers"].map(|name| {
        let of_links = rows
            .iter()
            .filter(|row| (&row.1, row.2) == (&Layer::Ip6, name));
        (
            Counter::of_host(Layer::Ip6, name),
            of_links.map(|row| row.3).sum(),
        )
    });
    sums.into_iter()
}

fn leg(near: usize, far: usize, link: &str) -> Option<Leg> {
    Some(Leg {
        near,
        far: Some(far),
        link: Some(link.to_owned()),
        is_elsewhere: false,
    })
}

/// 1,000 queries in 125 packets and as many single responses, each direction over a lossless link; the upstream is
/// IPv4.
const MEASURER: [Row; 5] = [
    ("client", Layer::Ip6, "OutRequests", 125),
    ("client", Layer::Ip6, "OutTransmits", 125),
    ("client", Layer::Ip6, "InReceives", 1_000),
    ("client", Layer::Ip6, "InDelivers", 1_000),
    ("client", Layer::Ip6, "InNoECTPkts", 1_000),
];
const DUT: [Row; 9] = [
    ("client", Layer::Ip6, "InReceives", 125),
    ("client", Layer::Ip6, "InDelivers", 125),
    ("client", Layer::Ip6, "InNoECTPkts", 1_000),
    ("client", Layer::Ip6, "OutRequests", 1_000),
    ("client", Layer::Ip6, "OutTransmits", 1_000),
    ("", Layer::Ip, "OutRequests", 2_000),
    ("", Layer::Ip, "OutTransmits", 2_000),
    ("", Layer::Ip, "InReceives", 2_000),
    ("", Layer::Ip, "InDelivers", 2_000),
];
const AUTHORITY: [Row; 4] = [
    ("", Layer::Ip, "OutRequests", 2_000),
    ("", Layer::Ip, "OutTransmits", 2_000),
    ("", Layer::Ip, "InReceives", 2_000),
    ("", Layer::Ip, "InDelivers", 2_000),
];

/// Three devices, with some counters different from those of a lossless trial.
fn observed(host: usize, rows: &[Row]) -> Observed {
    let mut clean = [MEASURER.to_vec(), DUT.to_vec(), AUTHORITY.to_vec()];
    for row in rows {
        clean[host].retain(|known| (known.0, &known.1, known.2) != (row.0, &row.1, row.2));
        clean[host].push(row.clone());
    }
    let roles = ["Measurer", "DUT", "authority"];
    let hosts = roles.iter().zip(&clean);
    Observed {
        hosts: hosts
            .map(|(role, rows)| change(role, false, rows))
            .collect(),
        client: leg(0, 1, "client"),
        upstreams: leg(1, 2, "upstream").into_iter().collect(),
    }
}

const OWN: Own = Own {
    sent: 1_000,
    answered: 0,
    not_sent: 0,
    undecided: 0,
    receive_drops: 0,
    authority_drops: 0,
    is_stream: false,
    is_past_the_kernel: false,
    authority_in_driver: false,
};

/// Place, host, counter, count, low and high of each loss.
fn found(observed: &Observed, own: &Own) -> Vec<String> {
    let found = gather(observed, own).into_iter();
    let told = found.map(|evidence| {
        let Source {
            host,
            link,
            counter,
            count,
        } = evidence.source;
        let link = link.map_or(String::new(), |link| format!(" {link}"));
        let high = evidence.high.map_or("any".to_owned(), |n| n.to_string());
        let (place, kind, low) = (evidence.place, evidence.kind, evidence.low);
        format!("{place:?} {kind:?}: {host}{link}: {counter} {count}: {low} to {high}")
    });
    told.collect()
}

fn tbf() -> Layer {
    Layer::Queue("tbf".to_owned())
}

#[test]
fn lossless_trial_has_no_losses() {
    assert_eq!(found(&observed(0, &[]), &OWN), Vec::<String>::new());
    assert_eq!(found(&Observed::default(), &OWN), Vec::<String>::new());
}

/// The host with different counters, the counters, and the expected losses.
type Case<'a> = (usize, &'a [Row], &'a [&'a str]);

fn assert_found(cases: &[Case<'_>]) {
    for (host, rows, expected) in cases {
        assert_eq!(found(&observed(*host, rows), &OWN), *expected, "{rows:?}");
    }
}

#[test]
fn losses_towards_dut_are_located() {
    assert_found(&[
        // A queue segmented packets and dropped segments: the arrived packets show the number.
        (
            1,
            &[("client", Layer::Ip6, "InNoECTPkts", 900)],
            &[
                "ToDut Lost: Measurer client: ip6 packets that left and did not arrive 100: 100 to 100",
            ],
        ),
        // One or two neighbour solicitations may be among the arrived packets.
        (
            1,
            &[
                ("client", Layer::Ip6, "InNoECTPkts", 901),
                ("client", Layer::Ip6, "InMcastPkts", 1),
                ("client", Layer::Icmp6, "InMsgs", 1),
            ],
            &[
                "ToDut Lost: Measurer client: ip6 packets that left and did not arrive 100: 100 to 101",
            ],
        ),
        // A neighbour solicitation alone is not a loss.
        (
            1,
            &[
                ("client", Layer::Ip6, "InNoECTPkts", 1_001),
                ("client", Layer::Ip6, "InMcastPkts", 1),
                ("client", Layer::Icmp6, "InMsgs", 1),
            ],
            &[],
        ),
        // A filter in the DUT's host.
        (
            1,
            &[("client", Layer::Ip6, "InDelivers", 120)],
            &[
                "DutHost Lost: DUT client: ip6 packets received and not delivered (a filter?) 5: 5 to 640",
            ],
        ),
        // Multicasts for groups without members are not delivered either.
        (
            1,
            &[
                ("client", Layer::Ip6, "InReceives", 127),
                ("client", Layer::Ip6, "InNoECTPkts", 1_002),
                ("client", Layer::Ip6, "InMcastPkts", 2),
            ],
            &[],
        ),
        // The drops of the DUT's own sockets are not the Tester's.
        (1, &[("", Layer::Udp6, "RcvbufErrors", 12)], &[]),
    ]);
}

/// Whatever the link counts.
#[test]
fn loopback_interface_delivers_for_a_local_route() {
    assert_found(&[
        (
            0,
            &[
                ("client", Layer::Ip6, "InDelivers", 20),
                ("lo", Layer::Ip6, "InDelivers", 980),
            ],
            &[],
        ),
        (
            0,
            &[
                ("client", Layer::Ip6, "InDelivers", 20),
                ("lo", Layer::Ip6, "InDelivers", 970),
            ],
            &[
                "Measurer Lost: Measurer client: ip6 packets received and not delivered (a filter?) 10: 10 to 1280",
            ],
        ),
    ]);
}

/// The Measurer's host counts none of its datagrams in either direction; the packets sent back by the DUT's host did
/// arrive.
#[test]
fn measurer_bypassing_kernel_has_only_counted_drops() {
    let own = Own {
        answered: 1_000,
        is_past_the_kernel: true,
        ..OWN
    };
    let mut rows: Vec<Row> = MEASURER.to_vec();
    rows.iter_mut().for_each(|row| row.3 = 0);
    assert_eq!(found(&observed(0, &rows), &own), Vec::<String>::new());
    rows.push(("client", Layer::Device, "rx_drop", 3));
    assert_eq!(
        found(&observed(0, &rows), &own),
        ["FromDut Lost: Measurer client: interface rx_drop 3: 3 to 384"]
    );
}

#[test]
fn losses_of_responses_and_upstream_are_located() {
    assert_found(&[
        // Responses dropped by a filter of the DUT's host, or by its queue.
        (
            1,
            &[("client", Layer::Ip6, "OutTransmits", 990)],
            &[
                "FromDut Lost: DUT client: ip6 packets made and not transmitted (a filter?) 10: 10 to 1280",
            ],
        ),
        (
            0,
            &[
                ("client", Layer::Ip6, "InReceives", 991),
                ("client", Layer::Ip6, "InDelivers", 991),
            ],
            &["FromDut Lost: DUT client: ip6 packets that left and did not arrive 9: 9 to 1152"],
        ),
        (
            1,
            &[
                ("upstream", tbf(), "drops", 3),
                ("upstream", tbf(), "overlimits", 70),
            ],
            &[
                "ToAuthority Lost: DUT upstream: tbf drops 3: 0 to any",
                "ToAuthority Held: DUT upstream: tbf overlimits 70: 0 to any",
            ],
        ),
        (
            2,
            &[
                ("", Layer::Ip, "InReceives", 1_980),
                ("", Layer::Ip, "InDelivers", 1_980),
            ],
            &[
                "ToAuthority Lost: DUT upstream: ip packets that left and did not arrive 20: 0 to any",
            ],
        ),
        (
            2,
            &[("", Layer::Udp, "SndbufErrors", 4)],
            &["FromAuthority Lost: authority: udp SndbufErrors 4: 0 to any"],
        ),
        (
            2,
            &[("", Layer::Udp, "MemErrors", 4)],
            &["Authority Lost: authority: udp MemErrors 4: 0 to any"],
        ),
    ]);
}

#[test]
fn dropping_queue_is_named() {
    let mut observed = observed(1, &[("client", Layer::Ip6, "InNoECTPkts", 600)]);
    let drops = ("client", tbf(), "drops", 90);
    let rows = [MEASURER.as_slice(), &[drops]].concat();
    observed.hosts[0] = change("Measurer", false, &rows);
    // The kernel reported some drops to the sender: those queries are unsent, and the other drops count.
    let own = Own {
        sent: 700,
        not_sent: 300,
        ..OWN
    };
    assert_eq!(
        found(&observed, &own),
        ["ToDut Lost: Measurer client: tbf drops 90: 100 to 100"]
    );
    let refused = refusing(&observed).unwrap();
    assert_eq!((refused.counter.as_str(), refused.count), ("tbf drops", 90));
}

#[test]
fn open_queries_at_early_end_may_be_lost_ones() {
    let observed = observed(1, &[("client", Layer::Ip6, "InNoECTPkts", 990)]);
    let own = Own {
        undecided: 6,
        ..OWN
    };
    let found = found(&observed, &own);
    assert!(found[0].ends_with(": 4 to 10"), "{found:?}");
}

#[test]
fn socket_losses_need_no_host_counters() {
    let own = Own {
        receive_drops: 2,
        authority_drops: 1,
        ..OWN
    };
    assert_eq!(
        found(&Observed::default(), &own),
        [
            "Measurer Sockets: Measurer: drops of its sockets 2: 2 to 256",
            "Authority Sockets: authority: drops of its sockets 1: 0 to any",
        ]
    );
}

/// Three devices with a second authority, which each receive 1,000 upstream queries over IPv6, with these counters in
/// addition to those of a lossless trial.
fn two_authorities(host: usize, rows: &[Row]) -> Observed {
    let asked = |link: &'static str| {
        ["OutRequests", "OutTransmits", "InReceives", "InDelivers"]
            .map(|name| (link, Layer::Ip6, name, 1_000))
    };
    let dut = [
        &DUT[..5],
        &asked("upstream to one"),
        &asked("upstream to two"),
    ]
    .concat();
    let [one, two] = ["upstream to one", "upstream to two"].map(|link| asked(link).to_vec());
    let mut clean = [MEASURER.to_vec(), dut, one, two];
    for row in rows {
        clean[host].retain(|known| (known.0, &known.1, known.2) != (row.0, &row.1, row.2));
        clean[host].push(row.clone());
    }
    let roles = ["Measurer", "DUT", "authority on one", "authority on two"];
    let hosts = roles.iter().zip(&clean);
    let legs = [leg(1, 2, "upstream to one"), leg(1, 3, "upstream to two")];
    Observed {
        hosts: hosts
            .map(|(role, rows)| change(role, false, rows))
            .collect(),
        client: leg(0, 1, "client"),
        upstreams: legs.into_iter().flatten().collect(),
    }
}

#[test]
fn losses_name_authority_of_their_link() {
    let told = |host, row: Row| found(&two_authorities(host, &[row]), &OWN);
    assert_eq!(
        told(3, ("upstream to two", tbf(), "drops", 3)),
        ["FromAuthority Lost: authority on two upstream to two: tbf drops 3: 0 to any"]
    );
    assert_eq!(
        told(3, ("upstream to two", Layer::Ip6, "InReceives", 990)),
        [
            "ToAuthority Lost: DUT upstream to two: ip6 packets that left and did not arrive 10: 0 to any"
        ]
    );
    assert_eq!(
        told(2, ("", Layer::Udp6, "InCsumErrors", 4)),
        ["Authority Lost: authority on one: udp6 InCsumErrors 4: 0 to any"]
    );
    // Packets that the DUT's host did not pass on are reported once, because their authority is unknown.
    let mut observed = two_authorities(1, &[("", Layer::Ip, "OutRequests", 20)]);
    observed.hosts[1] = {
        let counter = |name, count| (Counter::of_host(Layer::Ip, name), count);
        let more: CounterReading = [
            counter("OutRequests", 2_020),
            counter("OutTransmits", 2_000),
        ]
        .into_iter()
        .collect();
        let host = observed.hosts[1].clone();
        CounterChange {
            least: host.least.with(more.clone()),
            most: host.most.with(more),
            ..host
        }
    };
    let told = found(&observed, &OWN);
    let of_dut = told
        .iter()
        .filter(|it| it.contains("not transmitted"))
        .count();
    assert_eq!(of_dut, 1, "{told:?}");
}

/// One host for all roles: differences are meaningless, and counters of sockets include other programs.
#[test]
fn shared_host_has_only_interface_losses() {
    let rows = [
        ("lo", Layer::Device, "rx_drop", 5),
        ("", Layer::Udp6, "SndbufErrors", 9),
        ("", Layer::Udp6, "RcvbufErrors", 9),
        ("", Layer::Ip6, "InReceives", 9),
    ];
    let mut observed = Observed {
        hosts: vec![change("machine", true, &rows)],
        client: leg(0, 0, "lo"),
        upstreams: leg(0, 0, "lo").into_iter().collect(),
    };
    let expected = ["ToDut Lost: machine lo: interface rx_drop 5: 0 to any"];
    assert_eq!(found(&observed, &OWN), expected);
    // A physical interface counts frames for other hosts as drops.
    let rows = [
        ("eth0", Layer::Device, "rx_drop", 5),
        ("eth0", Layer::Device, "rx_missed", 2),
        ("eth0", Layer::Device, "tx_fifo", 3),
        ("eth0", Layer::Queue("fq_codel".to_owned()), "drops", 7),
    ];
    observed.hosts = vec![change("Measurer", true, &rows)];
    observed.client = Some(Leg {
        near: 0,
        far: None,
        link: Some("eth0".to_owned()),
        is_elsewhere: false,
    });
    observed.upstreams.clear();
    let expected = [
        "ToDut Lost: Measurer eth0: interface tx_fifo 3: 0 to 384",
        "FromDut Lost: Measurer eth0: interface rx_missed 2: 0 to 256",
    ];
    assert_eq!(found(&observed, &OWN), expected);
    assert!(!is_watched(&observed, &OWN));
}

/// A server that takes its queries from the driver, so that the kernel of its host counts none.
#[test]
fn host_with_bypassed_counters_has_no_losses() {
    let mut observed = observed(1, &[]);
    observed.hosts[1] = change("DUT", false, &[]);
    let own = Own {
        answered: 990,
        ..OWN
    };
    assert_eq!(found(&observed, &own), [""; 0]);
    assert!(!is_watched(&observed, &own));
    // Without any answer, the queries were lost on the way.
    assert!(is_watched(&observed, &OWN));
    assert!(!found(&observed, &OWN).is_empty());
    // A named drop counter still counts.
    let dropped = ("upstream", tbf(), "drops", 3);
    observed.hosts[2] = change("authority", false, &[dropped]);
    assert_eq!(
        found(&observed, &own),
        ["FromAuthority Lost: authority upstream: tbf drops 3: 0 to any"]
    );
}

#[test]
fn authority_with_bypassed_counters_has_no_losses() {
    let mut observed = observed(2, &[]);
    let asked = ("upstream", Layer::Ip6, "OutTransmits", 2_000);
    let dut = [DUT.to_vec(), vec![asked]].concat();
    observed.hosts[1] = change("DUT", false, &dut);
    let own = Own {
        answered: 990,
        ..OWN
    };
    assert_eq!(found(&observed, &own), [""; 0]);
    let half = Own {
        answered: 500,
        ..OWN
    };
    assert!(!found(&observed, &half).is_empty());
}

/// Over IPv4 or IPv6, with any number of answers: packets taken by the driver bypass the counters of the host.
#[test]
fn authority_in_driver_has_only_losses_of_its_link() {
    let mut observed = observed(1, &[("", Layer::Ip, "InReceives", 1_900)]);
    observed.hosts[2] = change("authority", false, &[]);
    let own = Own {
        answered: 10,
        authority_in_driver: true,
        ..OWN
    };
    assert_eq!(found(&observed, &own), [""; 0]);
    let by_sockets = Own {
        authority_in_driver: false,
        ..own
    };
    assert!(!found(&observed, &by_sockets).is_empty());
    let asked = ("upstream", Layer::Ip6, "OutTransmits", 2_000);
    observed.hosts[1] = change("DUT", false, &[DUT.to_vec(), vec![asked]].concat());
    assert_eq!(found(&observed, &own), [""; 0]);
    let dropped = ("upstream", Layer::Device, "tx_drop", 3);
    observed.hosts[2] = change("authority", false, &[dropped]);
    assert_eq!(
        found(&observed, &own),
        ["FromAuthority Lost: authority upstream: interface tx_drop 3: 0 to any"]
    );
}

#[test]
fn unreadable_host_has_no_losses() {
    let mut observed = observed(1, &[("client", Layer::Device, "rx_drop", 7)]);
    observed.hosts[1].is_unread = true;
    assert_eq!(found(&observed, &OWN), [""; 0]);
    assert!(!is_watched(&observed, &OWN));
}
