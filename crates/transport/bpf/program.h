// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// Common definitions of all BPF programs of this project.

#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

// Definition of a map without BTF, as loaders read it from the section "maps".
struct bpf_map_def {
    __u32 type;
    __u32 key_size;
    __u32 value_size;
    __u32 max_entries;
    __u32 flags;
};

// Packets are not aligned: the supported machines allow unaligned loads and stores.
#define AT(type, pointer) (*(volatile type *)(pointer))

// The sum of the halves of a word: sums of the internet checksum (RFC 1071) are kept in 64 bits.
INLINE __u64 halves(__u64 word)
{
    return (__u32)word + (word >> 32);
}
