// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import java.time.Duration;

/// Limits on the time and memory that clients of a service may take.
///
/// @param maxConnections connections open at a time; beyond it the connection that has waited
///   longest without a request is closed, or the new one when all have requests
/// @param headTimeout from the connection, or the response before, to the end of a request's head
/// @param minBytesPerSecond slowest request body and slowest reader of a response, on average
/// @param stall how much later than that rate a body or a response may be
/// @param maxBodyMemory bytes of all request bodies that are being read or worked on
public record HttpLimits(
        int maxConnections,
        Duration headTimeout,
        int minBytesPerSecond,
        Duration stall,
        long maxBodyMemory) {
    public HttpLimits {
        if (maxConnections < 1
                || minBytesPerSecond < 1
                || maxBodyMemory < 1
                || !headTimeout.isPositive()
                || !stall.isPositive()) {
            throw new IllegalArgumentException(
                    "limits must be positive: "
                            + maxConnections
                            + " connections, "
                            + headTimeout
                            + ", "
                            + minBytesPerSecond
                            + " bytes/s, "
                            + stall
                            + ", "
                            + maxBodyMemory
                            + " bytes");
        }
    }

    /// 4,096 connections, 30 s for a head, 4 KiB/s after 20 s, a quarter of the heap for bodies.
    public static HttpLimits defaults() {
        return new HttpLimits(
                4096,
                Duration.ofSeconds(30),
                4096,
                Duration.ofSeconds(20),
                Runtime.getRuntime().maxMemory() / 4);
    }

    /// The same with another number of connections.
    public HttpLimits withConnections(int most) {
        return new HttpLimits(most, headTimeout, minBytesPerSecond, stall, maxBodyMemory);
    }

    /// The time in which `bytes` have to pass.
    Duration timeFor(long bytes) {
        return stall.plusMillis(bytes * 1000 / minBytesPerSecond);
    }
}
