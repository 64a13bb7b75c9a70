// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import java.net.InetAddress;
import java.net.InetSocketAddress;

/// The two ends of one accepted connection, the local one by port only.
record TcpConnection(int localPort, InetAddress remote, int remotePort) {
    TcpConnection(InetSocketAddress local, InetSocketAddress remote) {
        this(local.getPort(), remote.getAddress(), remote.getPort());
    }
}
