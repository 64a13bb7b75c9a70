// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import java.util.Optional;

/// Where a rank listens.
///
/// @param host a name or an address; an IPv6 address without brackets
public record PeerAddress(String host, int port) {
    private static final int MAX_PORT = 65_535;
    private static final int MAX_HOST = 255;

    public PeerAddress {
        if (host.isEmpty() || host.length() > MAX_HOST || port < 1 || port > MAX_PORT) {
            throw new IllegalArgumentException("no address: host " + host + ", port " + port);
        }
    }

    /// `host:port`, an IPv6 host with or without brackets; empty where it is not of this form.
    public static Optional<PeerAddress> parse(String text) {
        int colon = text.lastIndexOf(':');
        if (colon < 1 || text.length() - colon > 6) {
            return Optional.empty();
        }
        var host = text.substring(0, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        int port = 0;
        for (int i = colon + 1; i < text.length(); i++) {
            int digit = Character.digit(text.charAt(i), 10);
            if (digit < 0) {
                return Optional.empty();
            }
            port = port * 10 + digit;
        }
        boolean legal =
                port >= 1
                        && port <= MAX_PORT
                        && !host.isEmpty()
                        && host.length() <= MAX_HOST
                        && host.chars().allMatch(PeerAddress::isOfHost);
        return legal ? Optional.of(new PeerAddress(host, port)) : Optional.empty();
    }

    private static boolean isOfHost(int c) {
        return c < 128 && (Character.isLetterOrDigit(c) || ".-_:%".indexOf(c) >= 0);
    }

    /// Where the rank listens that many ranks after this one, by vLLM's rule; empty where no port
    /// is left.
    public Optional<PeerAddress> rank(int rank) {
        return port + rank > MAX_PORT
                ? Optional.empty()
                : Optional.of(new PeerAddress(host, port + rank));
    }

    /// As the side channel takes it.
    public String endpoint() {
        return "tcp://" + (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }

    @Override
    public String toString() {
        return host + ":" + port;
    }
}
