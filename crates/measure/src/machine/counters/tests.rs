//! Tests the parsers with output of kernels and `tc`.

use super::*;

const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives InHdrErrors InDiscards InDelivers OutRequests OutDiscards OutNoRoutes
Ip: 2 64 3928 0 0 3928 3306 4 0
Icmp: InMsgs InErrors
Icmp: 1 0
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 39 2 7 40 7 11 0 0 0
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 9 9 9 9 9 9 9 9 9
";

const SNMP6: &str = "\
Ip6InReceives                   \t10
Ip6InNoECTPkts                  \t80
Ip6OutTransmits                 \t20
Icmp6InMsgs                     \t1
Icmp6InType136                  \t1
Udp6SndbufErrors                \t15
UdpLite6SndbufErrors            \t9
";

const DEV_SNMP6: &str = "\
ifIndex                         \t2
Ip6InReceives                   \t8
Ip6OutDiscards                  \t3
Icmp6InMsgs                     \t1
";

const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
client: 75464357    3909    1    2    3     4          0         0   273866    3292    5    6    7     8       9          0
";

/// The third line is that of a processor with one drop and two squeezes.
const SOFTNET: &str = "\
0000000c 00000000 00000000 00000000
00000f56 00000010 00000001 00000000
0000000a 00000001 00000002 00000000
";

const TC: &str = r#"[{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{},"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},{"kind":"tbf","handle":"8001:","dev":"client","root":true,"refcnt":3,"options":{"rate":125000,"burst":2000,"lat":8000},"bytes":24644,"packets":202,"drops":388,"overlimits":245,"requeues":0,"backlog":0,"qlen":0}]"#;

fn read() -> CounterReading {
    let mut reading = CounterReading::default();
    reading.snmp(SNMP);
    reading.snmp6(None, SNMP6);
    assert_eq!(reading.devices(DEV), ["lo", "client"]);
    reading.snmp6(Some("client"), DEV_SNMP6);
    reading.softnet(SOFTNET);
    reading.queues(TC);
    reading
}

#[test]
fn counters_are_found_by_layer_and_name() {
    let reading = read();
    let host = |layer, name| reading.get(&Counter::of_host(layer, name));
    assert_eq!(host(Layer::Ip, "InReceives"), 3928);
    assert_eq!(host(Layer::Ip, "OutDiscards"), 4);
    assert_eq!(host(Layer::Udp, "SndbufErrors"), 11);
    assert_eq!(host(Layer::Udp6, "SndbufErrors"), 15);
    assert_eq!(host(Layer::Ip6, "InNoECTPkts"), 80);
    assert_eq!(host(Layer::Icmp6, "InMsgs"), 1);
    assert_eq!(host(Layer::Icmp6, "InType136"), 0);
    assert_eq!(host(Layer::Softnet, "dropped"), 17);
    assert_eq!(host(Layer::Softnet, "time_squeeze"), 3);
    let client = |layer, name| reading.get(&Counter::of_link("client", layer, name));
    assert_eq!(client(Layer::Ip6, "InReceives"), 8);
    assert_eq!(client(Layer::Device, "rx_packets"), 3909);
    assert_eq!(client(Layer::Device, "rx_drop"), 2);
    assert_eq!(client(Layer::Device, "tx_drop"), 6);
    let queues = reading.of_queues("client", "drops");
    let [(tbf, 388)] = queues.as_slice() else {
        panic!("{queues:?}")
    };
    assert_eq!(tbf.to_string(), "tbf drops");
}

/// From one host to another.
#[test]
fn reading_is_read_back_from_json() {
    let text = serde_json::to_string(&read()).unwrap();
    assert_eq!(
        serde_json::from_str::<CounterReading>(&text).unwrap(),
        read()
    );
}

#[test]
fn unparsable_text_has_no_counters() {
    let mut reading = CounterReading::default();
    reading.snmp("Udp: RcvbufErrors\n");
    reading.snmp("Udp: RcvbufErrors\nUdp: many\n");
    reading.snmp6(None, "Udp6SndbufErrors\nUdp6NoPorts x\n");
    reading.softnet("zz\n");
    reading.queues("Error: no such command");
    assert_eq!(reading.devices("no table"), Vec::<String>::new());
    assert_eq!(reading, CounterReading::default());
}

#[test]
fn difference_has_the_losses_since_the_first_reading() {
    let before = read();
    let mut after = read();
    let more = [
        Counter::of_host(Layer::Udp6, "SndbufErrors"),
        Counter::of_host(Layer::Ip6, "InReceives"),
        Counter::of_link("client", Layer::Queue("tbf".into()), "drops"),
        Counter::of_link("client", Layer::Device, "tx_packets"),
    ];
    for counter in more {
        after.note(counter, 5);
    }
    let change = after.since(&before);
    let losses: Vec<_> = change.losses().map(|(c, n)| (c.to_string(), n)).collect();
    assert_eq!(
        losses,
        [("udp6 SndbufErrors".into(), 5), ("tbf drops".into(), 5)]
    );
    // A counter that was reset, as by creating an interface again, counts nothing.
    assert_eq!(before.since(&after).losses().count(), 0);
}

#[test]
fn receive_queue_counters_of_each_driver_are_recognised() {
    let mut reading = CounterReading::default();
    let ethtool = "NIC statistics:\n     rx_packets: 99\n     rx_queue_0_packets: 7\n     rx_queue_0_bytes: 700\n     \
                   rx_queue_10_packets: 5\n     tx_queue_0_packets: 3\n";
    reading.receive_queues("client", ethtool);
    assert_eq!(reading.received_by_queue("client"), [7, 5]);
    assert_eq!(reading.received_by_queue("upstream"), Vec::<u64>::new());
    let known = ["rx-3.packets", "rx3_packets", "rx_queue_3_xdp_packets"];
    assert_eq!(known.map(receive_queue), [Some(3); 3]);
    let others = ["rx_packets", "rx_queue_3_drops", "rx3_xdp_drop", "rx_3"];
    assert_eq!(others.map(receive_queue), [None; 4]);
}
