// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Arrays;

/// A quantity seen many times: count, sum, extremes, and counts in powers of two, so that a
/// Prometheus histogram survives merging. The unit is in the name under which [Stats] keeps it;
/// values are not negative.
///
/// Threading: immutable.
public final class Distribution {
    /// Bucket `b` counts values below `2^b` that no smaller bucket took; the last takes the rest.
    public static final int BUCKETS = 64;

    private final long sum;
    private final long min;
    private final long max;
    private final long[] buckets;

    private Distribution(long sum, long min, long max, long[] buckets) {
        this.sum = sum;
        this.min = min;
        this.max = max;
        this.buckets = buckets;
    }

    /// One value; a negative one counts as 0.
    public static Distribution of(long value) {
        long kept = Math.max(0, value);
        var buckets = new long[BUCKETS];
        buckets[bucketOf(kept)] = 1;
        return new Distribution(kept, kept, kept, buckets);
    }

    private static int bucketOf(long value) {
        return Math.min(BUCKETS - 1, Long.SIZE - Long.numberOfLeadingZeros(value));
    }

    public Distribution merge(Distribution other) {
        var both = buckets.clone();
        for (int b = 0; b < BUCKETS; b++) {
            both[b] += other.buckets[b];
        }
        return new Distribution(
                sum + other.sum, Math.min(min, other.min), Math.max(max, other.max), both);
    }

    public long count() {
        return Arrays.stream(buckets).sum();
    }

    public long sum() {
        return sum;
    }

    public long min() {
        return min;
    }

    public long max() {
        return max;
    }

    /// How many values bucket `b` took.
    public long bucket(int b) {
        return buckets[b];
    }

    void write(WireWriter out) {
        out.i64(sum).i64(min).i64(max).longs(buckets);
    }

    static Distribution read(WireReader in) {
        long sum = in.i64();
        long min = in.i64();
        long max = in.i64();
        var buckets = in.longs();
        if (buckets.length != BUCKETS) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "a distribution of " + buckets.length + " buckets, not " + BUCKETS);
        }
        return new Distribution(sum, min, max, buckets);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Distribution d
                && sum == d.sum
                && min == d.min
                && max == d.max
                && Arrays.equals(buckets, d.buckets);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(buckets) * 31 + Long.hashCode(sum);
    }

    @Override
    public String toString() {
        return "Distribution[count "
                + count()
                + ", sum "
                + sum
                + ", min "
                + min
                + ", max "
                + max
                + "]";
    }
}
