// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// Load of a benchmark without a load generator in user space: `gun` turns frames that the kernel provides into queries
// (BPF_F_TEST_XDP_LIVE_FRAMES), in the requested number, and sends them by the interface at which they seem to have
// arrived; `count` counts and drops the responses. `benches/live.rs` writes the map `query` and reads `counts`.
//
// Compiled by .ci/bpf; the object is in this directory.

#include "program.h"

static void *(*const map_lookup)(const void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;

// Size of the headers of Ethernet, IPv4 without options and UDP in octets.
#define HEADERS 42
// Offsets of the ID and of the variable part of the name, "-000-000".
#define ID_AT HEADERS
#define DIGITS_AT (HEADERS + 20)
#define CHECKSUM_AT (HEADERS - 2)
// Size of the frame of a query for such a name in dns64perf.test, with OPT.
#define FRAME 101

struct query {
    // A frame without the digits, ID 0, checksum 0.
    __u8 frame[FRAME + 3];
    // Checksum of pseudo-header, UDP header and message without these fields.
    __u64 sum;
    __u64 names;
};

struct counts {
    __u64 sent;
    // Responses with RCODE 0 and an answer, and other datagrams from port 53.
    __u64 answers;
    __u64 others;
};

struct bpf_map_def SEC("maps") query = {
    .type = BPF_MAP_TYPE_ARRAY,
    .key_size = sizeof(__u32),
    .value_size = sizeof(struct query),
    .max_entries = 1,
};

struct bpf_map_def SEC("maps") counts = {
    .type = BPF_MAP_TYPE_PERCPU_ARRAY,
    .key_size = sizeof(__u32),
    .value_size = sizeof(struct counts),
    .max_entries = 1,
};

// Three digits, the first in the lowest octet.
INLINE __u64 digits(__u32 number)
{
    return 0x303030 + number / 100 + (number / 10 % 10 << 8) + (number % 10 << 16);
}

// Sends a frame of the kernel's test run as it is.
SEC("xdp") int send(struct xdp_md *ctx)
{
    (void)ctx;
    return XDP_TX;
}

// The kernel reuses frames, which the server may have changed, so the whole frame is written.
SEC("xdp") int gun(struct xdp_md *ctx)
{
    __u8 *data = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
    __u32 zero = 0, at;
    const struct query *template = map_lookup(&query, &zero);
    struct counts *count = map_lookup(&counts, &zero);
    __u64 name, changed, sum;

    if (!template || !count || data + FRAME > end)
        return XDP_ABORTED;
#pragma unroll
    for (at = 0; at < FRAME - 8; at += 8)
        AT(__u64, data + at) = AT(__u64, template->frame + at);
    AT(__u64, data + FRAME - 8) = AT(__u64, template->frame + FRAME - 8);
    name = count->sent % template->names;
    changed = 0x2d | digits(name >> 8 & 0xff) << 8 | 0x2dull << 32 | digits(name & 0xff) << 40;
    sum = template->sum + halves(changed) + (__u16)count->sent;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    AT(__u64, data + DIGITS_AT) = changed;
    AT(__u16, data + ID_AT) = (__u16)count->sent;
    // 0 would mean no checksum.
    AT(__u16, data + CHECKSUM_AT) = sum == 0xffff ? 0xffff : (__u16)~sum;
    count->sent++;
    return XDP_TX;
}

SEC("xdp") int count(struct xdp_md *ctx)
{
    __u8 *data = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
    __u32 zero = 0;
    struct counts *count = map_lookup(&counts, &zero);

    // IPv4 without options, UDP from port 53.
    if (!count || data + HEADERS + 12 > end || AT(__u16, data + 12) != 0x0008 || data[14] != 0x45 || data[23] != 17 ||
        AT(__u16, data + 34) != 0x3500)
        return XDP_PASS;
    // QR set, RCODE 0, ANCOUNT not 0.
    if (data[HEADERS + 2] & 0x80 && !(data[HEADERS + 3] & 0x0f) && AT(__u16, data + HEADERS + 6))
        count->answers++;
    else
        count->others++;
    return XDP_DROP;
}

const char terms[] SEC("license") = "Dual MIT/GPL";
