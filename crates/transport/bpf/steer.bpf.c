// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// Steers the UDP datagrams that an AF_XDP link wants to its socket; passes everything else to the kernel.
//
// Compiled by .ci/bpf; the object is in this directory.

#include "program.h"

static void *(*const map_lookup)(const void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const redirect_map)(const void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*const adjust_meta)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_meta;
static __u64 (*const ktime)(void) = (void *)BPF_FUNC_ktime_get_ns;

// The known end of a flow: the address and port at which a link listens, or those of the server that it queries.
struct end {
    // IPv4 as ::ffff:a.b.c.d.
    __u8 address[16];
    // Network order.
    __u16 port;
    // LISTENS or ASKS.
    __u16 role;
};

#define LISTENS 1
#define ASKS 2

// For each local port, in host order: its roles, and the queues of the socket that queries from it: every of-th, from
// index on (of << 8 | index << 20).
struct bpf_map_def SEC("maps") ports = {
    .type = BPF_MAP_TYPE_ARRAY,
    .key_size = sizeof(__u32),
    .value_size = sizeof(__u32),
    .max_entries = 65536,
};

struct bpf_map_def SEC("maps") ends = {
    .type = BPF_MAP_TYPE_HASH,
    .key_size = sizeof(struct end),
    .value_size = sizeof(__u32),
    .max_entries = 1024,
};

// The socket of each queue.
struct bpf_map_def SEC("maps") sockets = {
    .type = BPF_MAP_TYPE_XSKMAP,
    .key_size = sizeof(__u32),
    .value_size = sizeof(__u32),
    .max_entries = 256,
};

// The interface.
struct station {
    __u8 mac[6];
    // Whether datagrams may have the sum of the pseudo-header in place of their checksum.
    __u8 partial;
    __u8 unused;
};

struct bpf_map_def SEC("maps") station = {
    .type = BPF_MAP_TYPE_ARRAY,
    .key_size = sizeof(__u32),
    .value_size = sizeof(struct station),
    .max_entries = 1,
};

#define ETHERNET_BYTES 14
#define PROTOCOL_UDP 17
#define IPV4 0x0800
#define IPV6 0x86dd
#define MORE_FRAGMENTS_AND_OFFSET 0x3fff

INLINE __u16 big(const __u8 *at)
{
    return (__u16)(at[0] << 8 | at[1]);
}

INLINE void copy_address(__u8 *to, const __u8 *from, int octets)
{
    for (int i = 0; i < octets; i++)
        to[16 - octets + i] = from[i];
}

INLINE int wanted(const __u8 *source, const __u8 *destination, int octets, const __u8 *udp, __u32 queue)
{
    // Nothing can be sent to port 0.
    __u32 port = big(udp + 2);
    if (AT(const __u16, udp) == 0)
        return 0;
    const __u32 *roles = map_lookup(&ports, &port);
    if (!roles || !*roles)
        return 0;
    struct end end = {};
    if (octets == 4)
        end.address[10] = end.address[11] = 0xff;
    if (*roles & LISTENS) {
        copy_address(end.address, destination, octets);
        end.port = *(const __u16 *)(udp + 2);
        end.role = LISTENS;
        if (map_lookup(&ends, &end))
            return 1;
    }
    __u32 of = *roles >> 8 & 0xfff;
    if ((*roles & ASKS) && of && queue % of == *roles >> 20) {
        copy_address(end.address, source, octets);
        end.port = *(const __u16 *)udp;
        end.role = ASKS;
        if (map_lookup(&ends, &end))
            return 1;
    }
    return 0;
}

// Whether one host sent the frame to this interface alone.
INLINE int is_for(const struct station *own, const __u8 *data)
{
    return AT(const __u32, own->mac) == AT(const __u32, data) && AT(const __u16, own->mac + 4) == AT(const __u16, data + 4)
        && !(data[6] & 1);
}

// Whether the checksum is the sum of the pseudo-header: only the kernel knows whether it completes the rest.
INLINE int is_partial(const __u8 *addresses, int octets, const __u8 *udp)
{
    __u64 sum = AT(const __u16, udp + 4) + (PROTOCOL_UDP << 8);
    for (int i = 0; i < octets; i += 8)
        sum += halves(AT(const __u64, addresses + i));
    for (int i = 0; i < 3; i++)
        sum = (sum & 0xffff) + (sum >> 16);
    return (__u16)sum == AT(const __u16, udp + 6);
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
    const __u8 *data = (const __u8 *)(long)ctx->data;
    const __u8 *data_end = (const __u8 *)(long)ctx->data_end;
    if (data + ETHERNET_BYTES > data_end)
        return XDP_PASS;
    __u32 zero = 0;
    const struct station *own = map_lookup(&station, &zero);
    if (!own || !is_for(own, data))
        return XDP_PASS;
    __u16 kind = big(data + 12);
    const __u8 *ip = data + ETHERNET_BYTES;
    // The kernel decides about sources that no other host has, and frames with VLAN tags.
    if (kind == IPV4) {
        // Packets with options and fragments are left to the kernel.
        if (ip + 28 > data_end || ip[0] != 0x45 || ip[9] != PROTOCOL_UDP
            || (big(ip + 6) & MORE_FRAGMENTS_AND_OFFSET))
            return XDP_PASS;
        if (ip[12] == 0 || ip[12] == 127 || ip[12] >= 224 || (!own->partial && is_partial(ip + 12, 8, ip + 20)))
            return XDP_PASS;
        if (!wanted(ip + 12, ip + 16, 4, ip + 20, ctx->rx_queue_index))
            return XDP_PASS;
    } else if (kind == IPV6) {
        if (ip + 48 > data_end || ip[0] >> 4 != 6 || ip[6] != PROTOCOL_UDP)
            return XDP_PASS;
        // Multicast; the unspecified, loopback and IPv4-mapped addresses.
        if (ip[8] == 0xff || AT(const __u64, ip + 8) == 0 || (!own->partial && is_partial(ip + 8, 32, ip + 40)))
            return XDP_PASS;
        if (!wanted(ip + 8, ip + 24, 16, ip + 40, ctx->rx_queue_index))
            return XDP_PASS;
    } else {
        return XDP_PASS;
    }
    // Writes the arrival time before the frame. Without space for it the reader uses the time at which it reads the
    // frame.
    if (adjust_meta(ctx, -(int)sizeof(__u64)) == 0) {
        __u64 *stamp = (__u64 *)(long)ctx->data_meta;
        if ((void *)(stamp + 1) <= (void *)(long)ctx->data)
            *stamp = ktime();
    }
    // Datagrams at a queue without a socket are passed to the kernel.
    return (int)redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}

// Passes everything. A veth device receives frames that its peer sends back by XDP_TX only if it has a program itself.
SEC("xdp")
int pass(struct xdp_md *ctx)
{
    (void)ctx;
    return XDP_PASS;
}

const char terms[] SEC("license") = "Dual MIT/GPL";
