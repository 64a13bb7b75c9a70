// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

/// Numbers that look random and are the same in every run.
public final class Mix {
    private Mix() {}

    /// One to one, and every bit of the result depends on every bit of `z`.
    public static long mix(long z) {
        z = (z ^ (z >>> 30)) * 0xbf58_476d_1ce4_e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d0_49bb_1331_11ebL;
        return z ^ (z >>> 31);
    }
}
