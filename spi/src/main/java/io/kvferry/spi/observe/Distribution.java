// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import java.util.Arrays;

/// A quantity seen many times: its sum, and counts in powers of two, so that a Prometheus histogram
/// survives merging. The unit is in the name under which [Stats] keeps it; values are not negative.
///
/// Threading: immutable.
public final class Distribution {
    /// Bucket `b` counts values below `2^b` that no smaller bucket took; the last takes the rest.
    public static final int BUCKETS = 64;

    private final long sum;
    private final long[] buckets;

    /// Restores earlier values, such as those of a distribution that came from another process.
    ///
    /// @param buckets how many values each bucket took; the caller gives the array away
    public Distribution(long sum, long[] buckets) {
        if (buckets.length != BUCKETS) {
            throw new IllegalArgumentException(
                    "a distribution of " + buckets.length + " buckets, not " + BUCKETS);
        }
        this.sum = sum;
        this.buckets = buckets;
    }

    /// One value; a negative one counts as 0.
    public static Distribution of(long value) {
        long kept = Math.max(0, value);
        var buckets = new long[BUCKETS];
        buckets[Math.min(BUCKETS - 1, Long.SIZE - Long.numberOfLeadingZeros(kept))] = 1;
        return new Distribution(kept, buckets);
    }

    public Distribution merge(Distribution other) {
        var both = buckets.clone();
        for (int b = 0; b < BUCKETS; b++) {
            both[b] += other.buckets[b];
        }
        return new Distribution(sum + other.sum, both);
    }

    public long sum() {
        return sum;
    }

    /// How many values bucket `b` took.
    public long bucket(int b) {
        return buckets[b];
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Distribution d && sum == d.sum && Arrays.equals(buckets, d.buckets);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(buckets) * 31 + Long.hashCode(sum);
    }

    @Override
    public String toString() {
        return "Distribution[count " + Arrays.stream(buckets).sum() + ", sum " + sum + "]";
    }
}
