// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
//
// What all BPF programs of this project begin with.

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
