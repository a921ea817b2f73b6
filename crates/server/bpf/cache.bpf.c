// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// dns64d's cache in the driver: sends responses that dns64d has put into the maps, and passes everything else to the
// kernel and its sockets.
//
// dns64d writes the maps; their layout is in crates/server/src/driver/layout.rs. A frame is answered only if the kernel
// would have accepted it and the socket path would have sent exactly this response; in case of doubt it is passed to
// the kernel. `.ci/bpf --write` compiles it.

#include "program.h"

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_head;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_tail;
static __u64 (*bpf_ktime_get_coarse_ns)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;
static long (*bpf_xdp_store_bytes)(struct xdp_md *ctx, __u32 at, void *from, __u32 len) =
    (void *)BPF_FUNC_xdp_store_bytes;

// Makes the compiler forget the known bounds of a value, so that it checks and uses the same register, as the verifier
// requires.
#define FORGET(x) asm volatile("" : "+r"(x))

// Keeps the value, but makes the verifier forget its bounds. Otherwise the verifier checks the rest of the program once
// for each path to this point, which exceeds its limit.
#define MERGE(x, any)                                                                                                  \
    do {                                                                                                               \
        __u32 other = (any);                                                                                           \
        (x) ^= other;                                                                                                  \
        asm volatile("" : "+r"(x), "+r"(other));                                                                       \
        (x) ^= other;                                                                                                  \
    } while (0)

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are compared and summed as a little-endian processor loads them"
#endif
#define HTONS(x) ((__u16)__builtin_bswap16((__u16)(x)))
#define HTONL(x) ((__u32)__builtin_bswap32((__u32)(x)))

#define ETH_LEN 14
#define IPV4_LEN 20
#define IPV6_LEN 40
#define UDP_LEN 8
#define DNS_LEN 12
#define OPT_LEN 11
#define ERROR_LEN 6
#define PLAIN_UDP_LEN_MAX 512
#define PROTO_UDP 17

// Limits of the program, the same as in layout.rs.
#define QUESTION_WORDS 17
#define QUESTION_MAX (8 * QUESTION_WORDS)
#define QUESTION_MIN 8
#define TTLS_MAX 16
#define REST_MAX 432
#define MESSAGE_MAX (DNS_LEN + QUESTION_MAX + REST_MAX)
#define WAYS 8
#define BUCKETS 4096
#define ANSWERS 16384
#define USED_PAGE 4096
#define LINKS 8
#define LOCALS 16
#define RANGES_BITS 6
#define RANGES (1 << RANGES_BITS)

// Flags of a query that the guard ignores or copies: RD, AD and CD.
#define FLAG_RD HTONS(0x0100)
#define FLAG_AD HTONS(0x0020)
#define FLAG_CD HTONS(0x0010)
#define BIT_DO 1
#define BIT_CD 2
#define EDNS_DO HTONS(0x8000)

// The active configuration: written in one operation, after everything else.
struct state {
    __u32 active; // index of the active configuration
    __u32 generation;
};

// An interface that the program is attached to.
struct link {
    __u32 ifindex;
    __u8 mac[6];
    // Frames come from this machine, with the pseudo-header sum in place of the UDP checksum.
    __u16 partial;
};

// An address that dns64d listens at. IPv4: the first four octets.
struct local {
    __u64 address[2];
    __u32 ifindex; // 0: any interface
    __u16 port;    // network order
    __u16 family;  // 4 or 6; 0: none
};

struct range4 {
    __u32 first, last;
};

struct range6 {
    __u64 first_high, first_low, last_high, last_low;
};

struct config {
    __u32 enabled;
    __u32 policy;
    __u64 seed;
    __u16 udp_size;
    // Half of the number of ranges of each family, as a power of two; 0: one or none.
    __u16 half4, half6;
    __u16 pad;
    struct link links[LINKS];
    struct local locals[LOCALS];
    // Clients that are answered here, sorted; unused ranges are empty. They contain no address of this host, and none
    // that the kernel refuses as a source.
    struct range4 ranges4[RANGES];
    struct range6 ranges6[RANGES];
};

struct ttl {
    __u32 seconds;
    __u16 at;  // in the message
    __u16 odd; // whether the offset is odd
};

// A rendered response. It does not change while it is in the index, nor for a second after that.
struct answer {
    __u64 stamp; // unique for each content
    __u32 generation;
    __u32 policy;
    __u32 rendered_s;
    __u32 expires_s;
    __u32 type_class;
    __u16 question_len;
    __u16 rest_len;
    __u16 flags;
    __u16 ancount;
    __u16 nscount;
    __u16 arcount;
    __u16 error;
    __u8 has_error;
    __u8 bits;
    __u8 note;
    __u8 kind;
    __u8 ttls;
    __u8 rcode;
    __u32 rest_sum; // of `rest`, with TTLs of 0
    __u32 pad[3];
    __u64 question[QUESTION_WORDS]; // in lower case, zero-padded
    struct ttl ttl[TTLS_MAX];
    __u8 rest[REST_MAX]; // the records
    __u64 stamp_again;
};

// Places of responses by hash: the upper half of the hash, and the number of the response plus 1.
struct bucket {
    __u64 way[WAYS];
};

struct counts {
    __u64 notes[256];
    __u64 kinds[8];
    __u64 rcodes[16];
    __u64 torn;
};

struct bpf_map_def SEC("maps") state = {BPF_MAP_TYPE_ARRAY, 4, sizeof(struct state), 1, 0};
struct bpf_map_def SEC("maps") config = {BPF_MAP_TYPE_ARRAY, 4, sizeof(struct config), 2, 0};
struct bpf_map_def SEC("maps") buckets = {BPF_MAP_TYPE_ARRAY, 4, sizeof(struct bucket), BUCKETS, 0};
struct bpf_map_def SEC("maps") answers = {BPF_MAP_TYPE_ARRAY, 4, sizeof(struct answer), ANSWERS, 0};
// One octet for each response: whether it was sent since dns64d last cleared the mark.
struct bpf_map_def SEC("maps") used = {BPF_MAP_TYPE_ARRAY, 4, USED_PAGE, ANSWERS / USED_PAGE, 0};
struct bpf_map_def SEC("maps") counts = {BPF_MAP_TYPE_PERCPU_ARRAY, 4, sizeof(struct counts), 1, 0};

// The parts of a query that its response needs.
struct query {
    __u64 words[QUESTION_WORDS]; // the question, zero-padded
    __u64 last;                  // its last eight octets
    __u64 source[2], target[2];  // as in `local`
    __u64 hash;
    __u64 question_sum;
    __u64 address_sum; // including ports
    // Separate words, because the verifier forgets the bounds of narrower fields.
    __u64 headers; // octets before the message
    __u64 question_len;
    __u32 type_class;
    __u32 frame_len;
    __u16 family;
    __u16 source_port, target_port;
    __u16 udp_len; // of the query
    __u16 id;
    __u16 flags;
    __u16 opt_size;
    __u8 has_opt;
    __u8 bits;
};

INLINE __u64 sum32(__u64 word) {
    return (word & 0xffffffff) + (word >> 32);
}

// The one's complement sum in 16 bits (RFC 1071).
INLINE __u32 fold(__u64 sum) {
    sum = sum32(sum);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

// The sum of octets that start at an odd offset: in 16 bits, a factor of 256 swaps the octets.
INLINE __u64 turned(__u64 sum, __u32 odd) {
    return sum << (8 * (odd & 1));
}

// Eight octets at once, with letters in lower case.
INLINE __u64 lower(__u64 word) {
    const __u64 ones = 0x0101010101010101ULL;
    __u64 low = word & (0x7f * ones);
    __u64 from_a = low + (0x80 - 'A') * ones;
    __u64 after_z = low + (0x7f - 'Z') * ones;
    __u64 letters = (from_a ^ after_z) & ~word & (0x80 * ones);
    return word | letters >> 2;
}

#define CASE_BITS 0x2020202020202020ULL

INLINE __u64 mix(__u64 hash, __u64 word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 32;
}

// Whether the kernel would accept the frame as a datagram; the UDP checksum is checked later.
INLINE int read_ipv4(struct query *q, void *data, void *end) {
    __u32 *ip = data + ETH_LEN;
    if ((void *)ip + IPV4_LEN + UDP_LEN + DNS_LEN > end)
        return 0;
    __u8 *octets = (void *)ip;
    __u16 *halves = (void *)ip;
    __u64 sum = (__u64)ip[0] + ip[1] + ip[2] + ip[3] + ip[4];
    // Without options, complete, TTL not 0.
    if (octets[0] != 0x45 || halves[3] & HTONS(0xbfff) || octets[8] == 0 || octets[9] != PROTO_UDP ||
        fold(sum) != 0xffff)
        return 0;
    __u16 *udp = (void *)ip + IPV4_LEN;
    __u32 total = HTONS(halves[1]);
    if (total != IPV4_LEN + HTONS(udp[2]))
        return 0;
    q->family = 4;
    q->headers = ETH_LEN + IPV4_LEN + UDP_LEN;
    q->source[0] = ip[3];
    q->target[0] = ip[4];
    q->address_sum = (__u64)ip[3] + ip[4];
    q->udp_len = HTONS(udp[2]);
    return 1;
}

INLINE int read_ipv6(struct query *q, void *data, void *end) {
    __u8 *ip = data + ETH_LEN;
    if ((void *)ip + IPV6_LEN + UDP_LEN + DNS_LEN > end)
        return 0;
    __u16 *udp = (void *)ip + IPV6_LEN;
    // Without extension headers, hop limit not 0.
    if (ip[0] >> 4 != 6 || ip[6] != PROTO_UDP || ip[7] == 0 || *(__u16 *)(ip + 4) != udp[2] || udp[3] == 0)
        return 0;
    q->family = 6;
    q->headers = ETH_LEN + IPV6_LEN + UDP_LEN;
    q->source[0] = *(__u64 *)(ip + 8);
    q->source[1] = *(__u64 *)(ip + 16);
    q->target[0] = *(__u64 *)(ip + 24);
    q->target[1] = *(__u64 *)(ip + 32);
    q->address_sum = sum32(q->source[0]) + sum32(q->source[1]) + sum32(q->target[0]) + sum32(q->target[1]);
    q->udp_len = HTONS(udp[2]);
    return 1;
}

// Whether the frame is addressed to one of our interfaces only; *partial: as in `link`.
INLINE int read_ethernet(struct config *config, __u32 ifindex, void *data, __u32 *partial) {
    __u32 *high = data;
    __u16 *low = data + 4;
    __u8 *source = data + 6;
    if (source[0] & 1)
        return 0;
    for (int i = 0; i < LINKS; i++) {
        struct link *link = &config->links[i];
        if (link->ifindex == 0)
            return 0;
        if (link->ifindex != ifindex)
            continue;
        *partial = link->partial;
        return *(__u32 *)link->mac == *high && *(__u16 *)(link->mac + 4) == *low;
    }
    return 0;
}

// Whether dns64d listens at the target.
INLINE int is_local(struct config *config, struct query *q, __u32 ifindex) {
    for (int i = 0; i < LOCALS; i++) {
        struct local *local = &config->locals[i];
        if (local->family == 0)
            return 0;
        if (local->family == q->family && local->address[0] == q->target[0] && local->address[1] == q->target[1] &&
            local->port == q->target_port && (local->ifindex == 0 || local->ifindex == ifindex))
            return 1;
    }
    return 0;
}

// Whether the client is one of those that are answered here.
INLINE int is_allowed4(struct config *config, __u32 client) {
    __u32 at = 0, half = config->half4;
    for (int i = 0; i < RANGES_BITS; i++) {
        if (half == 0)
            break;
        if (config->ranges4[(at + half) & (RANGES - 1)].first <= client)
            at += half;
        half >>= 1;
    }
    struct range4 *range = &config->ranges4[at & (RANGES - 1)];
    return range->first <= client && client <= range->last;
}

INLINE int at_most(__u64 a_high, __u64 a_low, __u64 b_high, __u64 b_low) {
    return a_high < b_high || (a_high == b_high && a_low <= b_low);
}

INLINE int is_allowed6(struct config *config, __u64 high, __u64 low) {
    __u32 at = 0, half = config->half6;
    for (int i = 0; i < RANGES_BITS; i++) {
        if (half == 0)
            break;
        struct range6 *range = &config->ranges6[(at + half) & (RANGES - 1)];
        if (at_most(range->first_high, range->first_low, high, low))
            at += half;
        half >>= 1;
    }
    struct range6 *range = &config->ranges6[at & (RANGES - 1)];
    return at_most(range->first_high, range->first_low, high, low) &&
           at_most(high, low, range->last_high, range->last_low);
}

// Loads the question, with its hash and its sum. The hash is equal for both cases of letters, and for a few other
// octets.
INLINE int read_question(struct query *q, void *question, void *end, __u64 seed) {
    __u32 whole = q->question_len >> 3, left = q->question_len & 7;
    __u64 hash = seed, sum = 0;
    void *last = question + (q->question_len - 8);
    FORGET(last);
    if (last + 8 > end)
        return 0;
    q->last = *(__u64 *)last;
    q->type_class = *(__u32 *)(last + 4);
#pragma unroll
    for (__u32 i = 0; i < QUESTION_WORDS; i++) {
        __u64 word = 0;
        if (i < whole) {
            __u64 *at = question + 8 * i;
            if ((void *)(at + 1) > end)
                return 0;
            word = *at;
        } else if (i == whole && left > 0) {
            // The last octets that do not fill a word, from the last eight octets of the question.
            word = q->last >> (8 * (8 - left));
        } else {
            break;
        }
        sum += sum32(word);
        q->words[i] = word;
        hash = mix(hash, word | CASE_BITS);
    }
    q->question_sum = sum;
    q->hash = mix(hash, q->bits);
    return 1;
}

// Parses the message like the guard, but accepts less: anything that the guard would refuse or may treat differently is
// not answered. Whether the question is a name with type and class is known only when it equals that of a response,
// octet by octet. Adds the sum of header and OPT to `sum`.
INLINE int read_message(struct query *q, void *dns, void *end, __u64 *sum) {
    __u64 front = *(__u64 *)dns;
    __u32 back = *(__u32 *)(dns + 8);
    q->id = front;
    q->flags = front >> 16;
    // A query with RD, one question and no record except OPT.
    if ((front >> 16 & ~(__u64)(FLAG_AD | FLAG_CD)) != (FLAG_RD | (__u64)HTONS(1) << 16) ||
        (back & ~((__u32)HTONS(1) << 16)) != 0)
        return 0;
    q->has_opt = back != 0;
    __u32 question_len = q->udp_len - (UDP_LEN + DNS_LEN) - (back != 0 ? OPT_LEN : 0);
    MERGE(question_len, q->id);
    FORGET(question_len);
    if (question_len < QUESTION_MIN)
        return 0;
    FORGET(question_len);
    if (question_len > QUESTION_MAX)
        return 0;
    FORGET(question_len);
    q->question_len = question_len;
    if (q->headers - UDP_LEN + q->udp_len > q->frame_len)
        return 0;
    *sum += sum32(front) + back;
    q->bits = q->flags & FLAG_CD ? BIT_CD : 0;
    if (!q->has_opt)
        return 1;
    void *opt = dns + DNS_LEN + q->question_len;
    FORGET(opt);
    if (opt + OPT_LEN > end)
        return 0;
    // Owner root, version 0, no options.
    __u64 word = *(__u64 *)opt;
    if ((word & 0x00ff000000ffffff) != 41 << 16 || *(__u16 *)(opt + 9) != 0)
        return 0;
    q->opt_size = HTONS((__u16)(word >> 24));
    if (*(__u16 *)(opt + 7) & EDNS_DO)
        q->bits |= BIT_DO;
    *sum += turned(sum32(word) + *(__u16 *)(opt + 8) + *(__u8 *)(opt + 10), q->question_len);
    return 1;
}

// Whether the UDP checksum is right (RFC 768, RFC 8200 section 8.1).
INLINE int is_intact(struct query *q, __u16 check, __u64 message_sum, __u32 partial) {
    if (check == 0)
        return q->family == 4;
    __u64 pseudo = q->address_sum + HTONS(PROTO_UDP) + HTONS(q->udp_len);
    __u64 ports = (__u64)q->source_port + q->target_port;
    __u64 sum = pseudo + ports + HTONS(q->udp_len) + check + message_sum + q->question_sum;
    return fold(sum) == 0xffff || (partial && fold(pseudo) == check);
}

INLINE struct answer *find(struct query *q, __u32 *number) {
    __u32 at = q->hash & (BUCKETS - 1);
    struct bucket *bucket = bpf_map_lookup_elem(&buckets, &at);
    if (!bucket)
        return 0;
    __u32 found = 0;
    for (int i = 0; i < WAYS; i++) {
        __u64 way = *(volatile __u64 *)&bucket->way[i];
        if (way >> 32 == q->hash >> 32 && (__u32)way != 0) {
            found = way;
            break;
        }
    }
    if (found == 0)
        return 0;
    *number = found - 1;
    return bpf_map_lookup_elem(&answers, number);
}

// Whether the response has this question, octet by octet.
INLINE int is_for(struct answer *answer, struct query *q) {
    if (answer->bits != q->bits || answer->question_len != q->question_len || answer->type_class != q->type_class)
        return 0;
    for (__u32 i = 0; i < QUESTION_WORDS; i++) {
        if (8 * i >= q->question_len)
            break;
        __u64 own = q->words[i], stored = answer->question[i];
        if (stored != own && stored != lower(own))
            return 0;
    }
    return 1;
}

// Resizes the frame to the length of the response; *is_moved: the content is now at a later offset. Nearly every driver
// has space at the front, few at the end.
INLINE int resize(struct xdp_md *ctx, int more, int *is_moved) {
    *is_moved = more > 0 && bpf_xdp_adjust_head(ctx, -more) == 0;
    return *is_moved || more == 0 || bpf_xdp_adjust_tail(ctx, more) == 0;
}

// Writes the question word by word; the last eight octets separately.
INLINE int write_question(void *to, void *end, struct query *q) {
    __u32 last = q->question_len - 8;
    for (__u32 i = 0; i < QUESTION_WORDS; i++) {
        if (8 * i >= last)
            break;
        __u64 *word = to + 8 * i;
        if ((void *)(word + 1) > end)
            return 0;
        *word = q->words[i];
    }
    void *at = to + last;
    FORGET(at);
    if (at + 8 > end)
        return 0;
    *(__u64 *)at = q->last;
    return 1;
}

INLINE void write_ipv4(void *ip, struct query *q, __u32 udp_len) {
    __u32 *words = ip;
    // Version and length of the header; no ID, don't fragment (RFC 6864 section 4.1); TTL 64.
    words[0] = HTONL(0x45000000 | (IPV4_LEN + udp_len));
    words[1] = HTONL(0x00004000);
    words[2] = HTONL(64 << 24 | PROTO_UDP << 16);
    words[3] = q->target[0];
    words[4] = q->source[0];
    __u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];
    *(__u16 *)(ip + 10) = ~fold(sum);
}

INLINE void write_ipv6(void *ip, struct query *q, __u32 udp_len) {
    *(__u32 *)ip = HTONL(0x60000000);
    *(__u32 *)(ip + 4) = HTONL(udp_len << 16 | PROTO_UDP << 8 | 64);
    *(__u64 *)(ip + 8) = q->target[0];
    *(__u64 *)(ip + 16) = q->target[1];
    *(__u64 *)(ip + 24) = q->source[0];
    *(__u64 *)(ip + 32) = q->source[1];
}

// Writes the remaining TTLs, and adds them to `sum`.
INLINE int write_ttls(void *dns, void *end, struct answer *answer, __u32 age_s, __u64 *sum) {
    for (__u32 i = 0; i < TTLS_MAX; i++) {
        if (i >= answer->ttls)
            break;
        struct ttl *ttl = &answer->ttl[i];
        __u32 at = ttl->at;
        if (at > MESSAGE_MAX)
            return 0;
        void *field = dns + at;
        FORGET(field);
        if (field + 4 > end)
            return 0;
        __u32 seconds = HTONL(ttl->seconds > age_s ? ttl->seconds - age_s : 0);
        *(__u32 *)field = seconds;
        *sum += turned(seconds, ttl->odd);
    }
    return 1;
}

INLINE int write_opt(void *dns, void *end, struct query *q, struct answer *answer, __u32 at, __u16 udp_size,
                     __u64 *sum) {
    if (at > MESSAGE_MAX)
        return 0;
    void *opt = dns + at;
    FORGET(opt);
    if (opt + OPT_LEN > end)
        return 0;
    int has_error = answer->has_error;
    *(__u8 *)opt = 0;
    *(__u16 *)(opt + 1) = HTONS(41);
    *(__u16 *)(opt + 3) = HTONS(udp_size);
    *(__u16 *)(opt + 5) = 0;
    *(__u16 *)(opt + 7) = q->bits & BIT_DO ? EDNS_DO : 0;
    *(__u16 *)(opt + 9) = has_error ? HTONS(ERROR_LEN) : 0;
    __u64 own = sum32(*(__u64 *)opt);
    if (!has_error) {
        own += *(__u16 *)(opt + 8) + *(__u8 *)(opt + 10);
    } else {
        if (opt + OPT_LEN + ERROR_LEN > end)
            return 0;
        *(__u16 *)(opt + 11) = HTONS(15);
        *(__u16 *)(opt + 13) = HTONS(2);
        *(__u16 *)(opt + 15) = answer->error;
        own += sum32(*(__u64 *)(opt + 8)) + *(__u8 *)(opt + 16);
    }
    *sum += turned(own, at);
    return 1;
}

INLINE void count(struct answer *answer, __u32 number, int torn) {
    __u32 zero = 0, page = number / USED_PAGE;
    struct counts *own = bpf_map_lookup_elem(&counts, &zero);
    if (!own)
        return;
    if (torn) {
        own->torn++;
        return;
    }
    own->notes[answer->note]++;
    own->kinds[answer->kind & 7]++;
    own->rcodes[answer->rcode & 15]++;
    __u8 *octets = bpf_map_lookup_elem(&used, &page);
    if (!octets)
        return;
    // Writes only a changed value, so that the cache line stays shared by all processors.
    __u8 *octet = octets + number % USED_PAGE;
    if (*octet == 0)
        *octet = 1;
}

// Writes the response over the query; returns 0 if the response is incomplete.
INLINE int write(struct xdp_md *ctx, struct query *q, struct answer *answer, int is_moved, __u32 len, __u32 age_s,
                 __u16 udp_size) {
    __u32 question_len = q->question_len, rest_len = answer->rest_len, headers = q->headers;
    FORGET(headers);
    if (headers > ETH_LEN + IPV6_LEN + UDP_LEN || headers < ETH_LEN + IPV4_LEN + UDP_LEN)
        return 0;
    if (question_len < QUESTION_MIN || question_len > QUESTION_MAX || rest_len > REST_MAX)
        return 0;
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    if (is_moved && !write_question(data + headers + DNS_LEN, end, q))
        return 0;
    if (rest_len > 0 && bpf_xdp_store_bytes(ctx, headers + DNS_LEN + question_len, answer->rest, rest_len) != 0)
        return 0;
    void *udp = data + (headers - UDP_LEN);
    if (udp + UDP_LEN + DNS_LEN > end)
        return 0;
    void *dns = udp + UDP_LEN;
    __u16 *header = dns;
    int wants_ad = q->flags & FLAG_AD || q->bits & BIT_DO;
    header[0] = q->id;
    header[1] = wants_ad ? answer->flags : answer->flags & ~FLAG_AD;
    header[2] = HTONS(1);
    header[3] = answer->ancount;
    header[4] = answer->nscount;
    header[5] = q->has_opt ? HTONS(HTONS(answer->arcount) + 1) : answer->arcount;
    __u64 sum = q->address_sum + q->source_port + q->target_port + q->question_sum + answer->rest_sum;
    sum += sum32(*(__u64 *)dns) + *(__u32 *)(dns + 8);
    if (!write_ttls(dns, end, answer, age_s, &sum))
        return 0;
    if (q->has_opt && !write_opt(dns, end, q, answer, DNS_LEN + question_len + rest_len, udp_size, &sum))
        return 0;
    __u32 udp_len = UDP_LEN + len;
    sum += HTONS(PROTO_UDP) + 2 * (__u64)HTONS(udp_len);
    __u16 check = ~fold(sum);
    *(__u16 *)udp = q->target_port;
    *(__u16 *)(udp + 2) = q->source_port;
    *(__u16 *)(udp + 4) = HTONS(udp_len);
    *(__u16 *)(udp + 6) = check == 0 ? 0xffff : check;
    if (q->family == 4) {
        if (data + ETH_LEN + IPV4_LEN > end)
            return 0;
        write_ipv4(data + ETH_LEN, q, udp_len);
    } else {
        if (data + ETH_LEN + IPV6_LEN > end)
            return 0;
        write_ipv6(data + ETH_LEN, q, udp_len);
    }
    return 1;
}

SEC("xdp") int cache(struct xdp_md *ctx) {
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    if (data + ETH_LEN > end)
        return XDP_PASS;
    struct query q = {};
    q.frame_len = end - data;
    __u16 protocol = *(__u16 *)(data + 12);
    if (protocol == HTONS(0x86dd)) {
        if (!read_ipv6(&q, data, end))
            return XDP_PASS;
    } else if (protocol != HTONS(0x0800) || !read_ipv4(&q, data, end)) {
        return XDP_PASS;
    }
    __u32 before_udp = q.headers - UDP_LEN;
    FORGET(before_udp);
    if (before_udp > ETH_LEN + IPV6_LEN)
        return XDP_PASS;
    FORGET(before_udp);
    void *udp = data + before_udp;
    if (udp + UDP_LEN + DNS_LEN > end)
        return XDP_PASS;
    void *dns = udp + UDP_LEN;
    q.source_port = *(__u16 *)udp;
    q.target_port = *(__u16 *)(udp + 2);
    __u16 check = *(__u16 *)(udp + 6);

    __u32 zero = 0;
    struct state *now = bpf_map_lookup_elem(&state, &zero);
    if (!now)
        return XDP_PASS;
    __u32 active = now->active & 1, generation = now->generation;
    struct config *conf = bpf_map_lookup_elem(&config, &active);
    if (!conf || !conf->enabled || q.source_port == 0)
        return XDP_PASS;
    __u32 partial = 0;
    if (!read_ethernet(conf, ctx->ingress_ifindex, data, &partial) || !is_local(conf, &q, ctx->ingress_ifindex))
        return XDP_PASS;
    int allowed = q.family == 4
                      ? is_allowed4(conf, HTONL(q.source[0]))
                      : is_allowed6(conf, __builtin_bswap64(q.source[0]), __builtin_bswap64(q.source[1]));
    if (!allowed)
        return XDP_PASS;

    __u64 message_sum = 0;
    if (!read_message(&q, dns, end, &message_sum) || !read_question(&q, dns + DNS_LEN, end, conf->seed) ||
        !is_intact(&q, check, message_sum, partial))
        return XDP_PASS;

    __u32 number;
    struct answer *answer = find(&q, &number);
    if (!answer)
        return XDP_PASS;
    __u64 stamp = *(volatile __u64 *)&answer->stamp_again;
    __u32 now_s = bpf_ktime_get_coarse_ns() / 1000000000;
    if (stamp == 0 || answer->generation != generation || answer->policy != conf->policy ||
        answer->expires_s <= now_s || !is_for(answer, &q))
        return XDP_PASS;
    __u32 age_s = now_s > answer->rendered_s ? now_s - answer->rendered_s : 0;

    __u32 len = DNS_LEN + q.question_len + answer->rest_len, limit = PLAIN_UDP_LEN_MAX;
    if (q.has_opt) {
        len += OPT_LEN + (answer->has_error ? ERROR_LEN : 0);
        __u32 both = q.opt_size < conf->udp_size ? q.opt_size : conf->udp_size;
        limit = both > limit ? both : limit;
    }
    if (len > limit || len > MESSAGE_MAX + OPT_LEN + ERROR_LEN)
        return XDP_PASS;

    // From here on the frame no longer contains the query.
    __u64 macs = *(__u64 *)data;
    __u32 macs_end = *(__u32 *)(data + 8);
    int is_moved;
    if (!resize(ctx, (int)(q.headers + len) - (int)q.frame_len, &is_moved))
        return XDP_PASS;
    int is_whole = write(ctx, &q, answer, is_moved, len, age_s, conf->udp_size);
    is_whole = is_whole && *(volatile __u64 *)&answer->stamp == stamp;
    count(answer, number, !is_whole);
    if (!is_whole)
        return XDP_DROP;
    data = (void *)(long)ctx->data;
    end = (void *)(long)ctx->data_end;
    if (data + ETH_LEN > end)
        return XDP_DROP;
    // Swaps source and destination.
    *(__u32 *)data = macs >> 48 | (__u64)macs_end << 16;
    *(__u16 *)(data + 4) = macs_end >> 16;
    *(__u32 *)(data + 6) = macs;
    *(__u16 *)(data + 10) = macs >> 32;
    *(__u16 *)(data + 12) = protocol;
    return XDP_TX;
}

char _license[] SEC("license") = "Dual MIT/GPL";
