// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// Answers the common query on arrival: one question for A or AAAA of a name that encodes an address, class IN, with a
// plain OPT record or none. The query is an unfragmented datagram over IPv4 without options or IPv6 without extension
// headers, to an address and the port that the socket authority serves. All other frames are passed to the kernel, and
// so to that authority.
//
// The DNS octets are those of `authority/fast.rs`; `authority/driver/config.rs` writes the map `config`. `.ci/bpf`
// compiles this file; the object is in the tree.
//
// A reply is longer than its query by one record. The room is added at the front (bpf_xdp_adjust_head), because there
// may be none behind the frame: the octets before the record move to the front, and the record is written in the gap.

#include "program.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read and written in the order of little-endian machines"
#endif

static void *(*const map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_head;

// Lengths of headers.
#define ETHERNET 14
#define IPV4 20
#define IPV6 40
#define UDP 8
// Length of the DNS header, and offsets of the label and the suffix of the name.
#define HEADER 12
#define LABEL_AT 13
#define SUFFIX_AT 28
// Length of an OPT record without options.
#define OPT 11

// Length of header and question: 33 octets if the suffix is the root, and at most 271.
#define QUESTION_MIN 33
#define QUESTION_MAX 271
// 8-octet words in the longest question, including the one with its end.
#define WORDS 34

// Largest number of served addresses of each family.
#define ADDRESSES 4

#define MILLION 1000000

enum kind { KIND_A, KIND_AAAA, KIND_NODATA, KINDS };

// Written by `driver::config`. Multi-octet fields of packets are in network byte order.
struct config {
	__u64 v6[ADDRESSES][2];
	// The expected question: word `i` under the mask `care`, with the bits of `fold` set, must equal `expect`. The
	// last word compares the last 8 octets, if the length is not a multiple of 8.
	__u64 care[WORDS];
	__u64 fold[WORDS];
	__u64 expect[WORDS];
	// Records by kind. The address of the name is at the end of A and AAAA, and is 0 here.
	__u64 record[KINDS][7];
	__u64 record_sum[KINDS];
	// First 8 octets of the OPT record of replies, without DO; the other octets are 0.
	__u64 opt_low;
	// MAC address of the interface, in the first six octets.
	__u64 mac;
	__u32 v4[ADDRESSES];
	// Length of header and question, offset of the type, and offset of the last 8 octets.
	__u32 question;
	__u32 type_at;
	__u32 tail_at;
	// Number of 8-octet words in the question, and bits of its last 8 octets that these contain; 0 for all.
	__u32 words;
	__u32 tail_shift;
	// Names with an AAAA record, per million.
	__u32 share;
	__u16 port;
	// Whether datagrams may have the sum of the pseudo-header in place of their checksum.
	__u16 partial;
	__u16 unused[2];
};

// Number of answers by kind.
struct counts {
	__u64 of[KINDS];
};

struct bpf_map_def SEC("maps") config = {
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = sizeof(__u32),
	.value_size = sizeof(struct config),
	.max_entries = 1,
};

struct bpf_map_def SEC("maps") counts = {
	.type = BPF_MAP_TYPE_PERCPU_ARRAY,
	.key_size = sizeof(__u32),
	.value_size = sizeof(struct counts),
	.max_entries = 1,
};

INLINE __u16 swapped(__u16 word)
{
	return (__u16)(word << 8 | word >> 8);
}

INLINE __u16 folded(__u64 sum)
{
	// The sum has at most 41 bits, more than any sum here: 25 bits, then 17, then 16.
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)(sum + (sum >> 16));
}

// Checksum of data that begins at offset `at`: swapped if the offset is odd.
INLINE __u64 placed(__u64 sum, __u32 at)
{
	return at & 1 ? swapped(folded(sum)) : sum;
}

// Value of three decimal digits; above 255 if they are not digits.
INLINE __u32 number(__u32 digits)
{
	digits = (digits & 0xffffff) ^ 0x303030;
	if (((digits + 0x767676) | digits) & 0x808080)
		return 256;
	return (digits & 0xff) * 100 + (digits >> 8 & 0xff) * 10 + (digits >> 16);
}

// Returns the checksum of the pseudo-header without the length, if the IPv4 header is that of an unfragmented datagram
// to a served address that the kernel would deliver; otherwise 0. It is the same for query and reply.
INLINE __u64 ipv4_for_us(const struct config *config, __u8 *ip, __u32 octets)
{
	__u32 first = AT(__u32, ip), second = AT(__u32, ip + 4), third = AT(__u32, ip + 8);
	__u32 from = AT(__u32, ip + 12), to = AT(__u32, ip + 16);
	__u32 source = from & 0xff;
	__u64 addresses = (__u64)from + to;

	// Version 4, no options; the whole frame; not a fragment; UDP.
	if ((first & 0xff) != 0x45 || swapped(first >> 16) != octets)
		return 0;
	if (second & 0xffbf0000 || (third & 0xff00) != 17 << 8)
		return 0;
	if (folded(addresses + first + second + third) != 0xffff)
		return 0;
	// Invalid source addresses (RFC 1122 section 3.2.1.3).
	if (source == 0 || source == 127 || source >= 224 || to == 0)
		return 0;

	__u64 pseudo = 0;

	// No frame comes from an address of this host.
	for (int i = 0; i < ADDRESSES; i++) {
		if (config->v4[i] == from)
			return 0;
		if (config->v4[i] == to)
			pseudo = addresses + (17 << 8);
	}
	return pseudo;
}

// The same for IPv6.
INLINE __u64 ipv6_for_us(const struct config *config, __u8 *ip, __u32 octets)
{
	__u32 second = AT(__u32, ip + 4);
	__u64 from = AT(__u64, ip + 8), from_low = AT(__u64, ip + 16);
	__u64 to = AT(__u64, ip + 24), to_low = AT(__u64, ip + 32);

	// Version 6; the whole frame; UDP.
	if ((ip[0] & 0xf0) != 0x60 || swapped((__u16)second) + IPV6 != octets || (second >> 16 & 0xff) != 17)
		return 0;
	// Multicast; the unspecified, loopback and IPv4-mapped addresses (RFC 4291 section 2).
	if ((from & 0xff) == 0xff || from == 0 || to == 0)
		return 0;

	__u64 pseudo = 0;

	for (int i = 0; i < ADDRESSES; i++) {
		if (config->v6[i][0] == from && config->v6[i][1] == from_low)
			return 0;
		if (config->v6[i][0] == to && config->v6[i][1] == to_low)
			pseudo = halves(from) + halves(from_low) + halves(to) + halves(to_low) + (17 << 8);
	}
	return pseudo;
}

// Writes the headers before the DNS message of a reply, from those of the query, which are `grow` octets behind.
INLINE void write_headers(__u8 *data, __u32 grow, const int is_v6, __u64 pseudo, __u32 udp_octets, __u16 checksum)
{
	__u8 *old = data + grow, *ip = data + ETHERNET;
	__u64 macs = AT(__u64, old);
	__u32 mac_end = AT(__u32, old + 8), ports;

	// Source and destination are swapped. Everything is written before the octets that are still to be read.
	AT(__u64, data) = macs >> 48 | (__u64)mac_end << 16 | macs << 48;
	AT(__u32, data + 8) = (__u32)(macs >> 16);
	if (is_v6) {
		__u64 from = AT(__u64, old + ETHERNET + 8), from_low = AT(__u64, old + ETHERNET + 16);
		__u64 to = AT(__u64, old + ETHERNET + 24), to_low = AT(__u64, old + ETHERNET + 32);

		AT(__u16, data + 12) = 0xdd86;
		// UDP, hop limit 64.
		AT(__u64, ip) = 0x60 | (__u64)(swapped(udp_octets) | 17 << 16 | 64 << 24) << 32;
		AT(__u64, ip + 8) = to;
		AT(__u64, ip + 16) = to_low;
		AT(__u64, ip + 24) = from;
		AT(__u64, ip + 32) = from_low;
		ports = AT(__u32, old + ETHERNET + IPV6);
	} else {
		__u64 addresses = AT(__u64, old + ETHERNET + 12);
		// DF set, ID 0 (RFC 6864 section 4.1); TTL 64, UDP.
		__u64 start = 0x45 | (__u32)swapped(udp_octets + IPV4) << 16 | 0x40ULL << 48;
		__u32 third = 64 | 17 << 8;
		__u16 sum = ~folded(pseudo - (17 << 8) + halves(start) + third);

		AT(__u16, data + 12) = 0x0008;
		AT(__u64, ip) = start;
		AT(__u32, ip + 8) = third | (__u32)sum << 16;
		AT(__u64, ip + 12) = addresses >> 32 | addresses << 32;
		ports = AT(__u32, old + ETHERNET + IPV4);
	}
	AT(__u64, ip + (is_v6 ? IPV6 : IPV4)) =
		ports >> 16 | (__u64)(__u16)ports << 16 | (__u64)swapped(udp_octets) << 32 | (__u64)checksum << 48;
}

INLINE int serve(struct xdp_md *ctx, const struct config *config, const int is_v6)
{
	const __u32 ip_octets = is_v6 ? IPV6 : IPV4, udp_at = ETHERNET + ip_octets, at = udp_at + UDP;
	__u8 *data = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
	__u32 octets = end - data;

	if (data + at + QUESTION_MIN > end || octets > 1024 || (AT(__u64, data) & 0xffffffffffff) != config->mac)
		return XDP_PASS;
	// From many hosts at once.
	if (data[6] & 1)
		return XDP_PASS;

	__u64 pseudo = is_v6 ? ipv6_for_us(config, data + ETHERNET, octets - ETHERNET)
			     : ipv4_for_us(config, data + ETHERNET, octets - ETHERNET);
	// Source port, destination port, length, checksum.
	__u64 udp = AT(__u64, data + udp_at);

	if (!pseudo || (__u16)udp == 0 || (__u16)(udp >> 16) != config->port || swapped(udp >> 32) + udp_at != octets)
		return XDP_PASS;

	// Exactly one question, without or with an OPT record.
	__u32 rest = octets - at - config->question;

	if (rest != 0 && rest != OPT)
		return XDP_PASS;

	// Always 0, but unknown to the verifier: otherwise it would track each word and try all combinations.
	__u32 start = (config->question - config->type_at - 4) & 7, words = config->words;
	__u8 *payload = data + at;
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < WORDS - 1; i++) {
		__u8 *from = payload + start + 8 * i;

		if (i >= words)
			break;
		if (from + 8 > end)
			return XDP_PASS;

		__u64 word = AT(__u64, from);

		if (((word & config->care[i]) | config->fold[i]) != config->expect[i])
			return XDP_PASS;
		sum += halves(word);
	}

	// Known values are read again, because registers are scarce.
	__u32 question = AT(__u32, &config->question), type_at = config->type_at, tail_at = config->tail_at;
	__u32 udp_octets = end - data - udp_at, has_opt = udp_octets - UDP != question;

	udp = AT(__u64, data + udp_at);
	if (type_at > QUESTION_MAX - 4 || tail_at > QUESTION_MAX - 8)
		return XDP_PASS;

	__u8 *type = payload + type_at;

	if (type + 4 > end)
		return XDP_PASS;
	if (config->tail_shift) {
		__u8 *tail = payload + tail_at;

		if (tail + 8 > end || words >= WORDS)
			return XDP_PASS;

		__u64 word = AT(__u64, tail);

		if (((word & config->care[words]) | config->fold[words]) != config->expect[words])
			return XDP_PASS;
		sum += halves(word >> (config->tail_shift & 63));
	}

	__u32 rtype = type[1], do_bit = 0;
	__u64 ends = 0;

	if (has_opt) {
		__u8 *opt = type + 4;

		if (opt + OPT > end)
			return XDP_PASS;

		__u64 low = AT(__u64, opt);
		__u32 high = AT(__u32, opt + 7);

		// Root, OPT; version 0; no options.
		if ((low & 0x00ff000000ffffff) != 41 << 16 || high & 0xffff0000)
			return XDP_PASS;
		do_bit = high & 0x80;
		ends = placed(halves(low) + (high >> 8), question);
	}

	// The checksum is complete, absent (IPv4), or on a veth link only that of the pseudo-header.
	__u16 checksum = udp >> 48;

	if (checksum == 0) {
		if (is_v6)
			return XDP_PASS;
	} else {
		__u64 with_length = pseudo + swapped(udp_octets);

		if (folded(with_length + halves(udp) + sum + ends) != 0xffff &&
		    !(config->partial && checksum == folded(with_length)))
			return XDP_PASS;
	}

	__u64 header = AT(__u64, payload);
	__u32 counted = AT(__u32, payload + 8);

	// Low octet of ARCOUNT, which the comparison of words excludes.
	if ((counted >> 24) != has_opt)
		return XDP_PASS;

	__u32 n0 = number(AT(__u32, payload + LABEL_AT)), n1 = number(AT(__u32, payload + LABEL_AT + 4));
	__u32 n2 = number(AT(__u32, payload + LABEL_AT + 8)), n3 = number(AT(__u32, payload + LABEL_AT + 12));

	if ((n0 | n1 | n2 | n3) > 255)
		return XDP_PASS;

	__u32 address = n0 | n1 << 8 | n2 << 16 | n3 << 24;
	enum kind kind;
	__u32 grow;

	if (rtype == 1) {
		kind = KIND_A;
		grow = 16;
	} else if (rtype == 28) {
		__u32 share = config->share, n = n0 << 24 | n1 << 16 | n2 << 8 | n3;

		// `Share::picks`: the share of the numbers up to this one is larger than that of those before it.
		if (share != 0 && (share == MILLION || (__u64)n * share % MILLION >= MILLION - share)) {
			kind = KIND_AAAA;
			grow = 28;
		} else {
			kind = KIND_NODATA;
			grow = 50;
		}
	} else {
		return XDP_PASS;
	}

	// QR and AA set, RD copied; CD copied; one question.
	__u32 flags = 0x84 | (header >> 16 & 0x01) | (header >> 16 & 0x1000);
	__u64 answers = kind != KIND_NODATA, denials = kind == KIND_NODATA;

	sum -= halves(header) + counted;
	header = (header & 0xffff) | (__u64)flags << 16 | 0x0100ULL << 32 | answers << 56;
	counted = denials << 8 | has_opt << 24;
	ends = config->record_sum[kind] + (kind == KIND_NODATA ? 0 : address);
	if (has_opt)
		ends += halves(config->opt_low) + (do_bit << 8);
	udp_octets += grow;
	sum += halves(header) + counted + placed(ends, question) + pseudo + (__u32)udp + 2 * (__u64)swapped(udp_octets);
	checksum = ~folded(sum);
	// 0 would mean that there is no checksum (RFC 768).
	checksum = checksum ? checksum : 0xffff;

	__u32 zero = 0;
	struct counts *counts_here = map_lookup_elem(&counts, &zero);

	// If there is no room, the frame is still unchanged and can be passed on. Afterwards it is answered.
	if (!counts_here || xdp_adjust_head(ctx, -(int)grow))
		return XDP_PASS;
	data = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	payload = data + at;
	if (payload + QUESTION_MIN + grow > end)
		return XDP_ABORTED;
	write_headers(data, grow, is_v6, pseudo, udp_octets, checksum);

	// Moves forward in ascending order, so that no word is overwritten before it is read.
	for (i = 0; i < WORDS - 1; i++) {
		if (i >= words)
			break;

		__u8 *to = payload + start + 8 * i;

		if (to + grow + 8 > end)
			return XDP_ABORTED;
		AT(__u64, to) = AT(__u64, to + grow);
	}

	__u8 *tail = payload + tail_at;

	if (tail + grow + 8 > end)
		return XDP_ABORTED;
	AT(__u64, tail) = AT(__u64, tail + grow);
	AT(__u64, payload) = header;
	AT(__u32, payload + 8) = counted;

	__u8 *record = payload + type_at + 4, *opt = record + grow;
	const __u64 *words_of = config->record[kind];

	if (record + grow > end)
		return XDP_ABORTED;
	AT(__u64, record) = words_of[0];
	if (kind == KIND_A) {
		AT(__u64, record + 8) = words_of[1] | (__u64)address << 32;
	} else if (kind == KIND_AAAA) {
		AT(__u64, record + 8) = words_of[1];
		AT(__u64, record + 16) = words_of[2];
		AT(__u32, record + 24) = address;
	} else {
		AT(__u64, record + 8) = words_of[1];
		AT(__u64, record + 16) = words_of[2];
		AT(__u64, record + 24) = words_of[3];
		AT(__u64, record + 32) = words_of[4];
		AT(__u64, record + 40) = words_of[5];
		AT(__u16, record + 48) = (__u16)words_of[6];
	}
	if (has_opt) {
		if (opt + OPT > end)
			return XDP_ABORTED;
		// DO is in the eighth octet.
		AT(__u64, opt) = config->opt_low | (__u64)do_bit << 56;
		AT(__u16, opt + 8) = 0;
		opt[10] = 0;
	}
	counts_here->of[kind]++;
	return XDP_TX;
}

SEC("xdp")
int authority(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
	__u32 zero = 0;
	const struct config *config_here;

	if (data + ETHERNET > end)
		return XDP_PASS;

	__u16 type = AT(__u16, data + 12);

	if (type != 0x0008 && type != 0xdd86)
		return XDP_PASS;
	config_here = map_lookup_elem(&config, &zero);
	if (!config_here)
		return XDP_PASS;
	return type == 0xdd86 ? serve(ctx, config_here, 1) : serve(ctx, config_here, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
