// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import java.net.InetAddress;
import java.net.URI;
import java.util.Locale;

/// Compares side channel addresses regardless of their spelling. Names are not looked up: two names
/// of one host, or a name and its address, count as different.
public final class WorkerAddress {
    private static final String LOOPBACK = "loopback";
    private static final InetAddress LOOPBACK_4 = InetAddress.ofLiteral("127.0.0.1");
    private static final InetAddress LOOPBACK_6 = InetAddress.ofLiteral("::1");

    private WorkerAddress() {}

    /// One form for all spellings of a `tcp://host:port` address: upper and lower case, forms of an
    /// IP address, names of the loopback address, zeros before the port. Other text stays as it is.
    public static String canonical(String address) {
        URI uri;
        try {
            uri = URI.create(address);
        } catch (IllegalArgumentException _) {
            return address; // nobody connects to it
        }
        return uri.getHost() == null ? address : host(uri.getHost()) + " " + uri.getPort();
    }

    private static String host(String spelled) {
        var host = spelled.toLowerCase(Locale.ROOT);
        if (host.startsWith("[")) {
            host = host.substring(1, host.length() - 1);
        }
        int scope = host.indexOf('%');
        host = scope < 0 ? host : host.substring(0, scope);
        host = host.endsWith(".") ? host.substring(0, host.length() - 1) : host;
        if (host.equals("localhost")) {
            return LOOPBACK;
        }
        try {
            var ip = InetAddress.ofLiteral(host);
            // Connecting to the wildcard address leads to this host. The other addresses of 127/8
            // may have listeners of their own.
            boolean loops =
                    ip.isAnyLocalAddress() || ip.equals(LOOPBACK_4) || ip.equals(LOOPBACK_6);
            return loops ? LOOPBACK : ip.getHostAddress();
        } catch (IllegalArgumentException _) {
            return host; // a name
        }
    }
}
