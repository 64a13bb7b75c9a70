// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.net.HostNames;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.util.concurrent.ThreadLocalRandom;

/// The two listening sockets of an engine. They are bound once and kept, so that no other process
/// can take a port in between.
public record Ports(String host, ServerSocketChannel handshake, ServerSocketChannel data) {
    private static final Logger LOG = LoggerFactory.getLogger(Ports.class);
    private static final int BACKLOG = 512;

    private static final int TRIES = 500;

    /// Something that binds to a port or throws.
    private interface Binding<T> {
        T at(int port) throws IOException;
    }

    public static Ports bind(EngineConfig config) {
        try (var parts = new OpeningParts()) {
            var handshake = parts.add(listen(config), Ports::close);
            var ports = new Ports(config.host(), handshake, listen(config));
            parts.keep();
            DataSockets.expectConnections(ports.data());
            return ports;
        }
    }

    public void close() {
        close(handshake);
        close(data);
    }

    private static void close(ServerSocketChannel port) {
        try {
            port.close();
        } catch (IOException e) {
            LOG.debug("closing {} failed: {}", port, e.toString());
        }
    }

    private static ServerSocketChannel listen(EngineConfig config) {
        var host = HostNames.SYSTEM.socketAddress(config.bindHost(), 0).getAddress();
        if (host == null) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "kv_ip (or bind_host) "
                            + config.bindHost()
                            + " is not a known address; give one of this host's addresses");
        }
        return draw(
                config,
                port -> {
                    ServerSocketChannel channel = ServerSocketChannel.open();
                    try {
                        return channel.bind(new InetSocketAddress(host, port), BACKLOG);
                    } catch (IOException e) {
                        channel.close();
                        throw e;
                    }
                });
    }

    private static <T> T draw(EngineConfig config, Binding<T> binding) {
        IOException last = new IOException("no port was tried");
        int tries = config.maxPort() == 0 ? 1 : TRIES;
        for (int i = 0; i < tries; i++) {
            int port =
                    config.maxPort() == 0
                            ? 0
                            : ThreadLocalRandom.current()
                                    .nextInt(config.minPort(), config.maxPort() + 1);
            try {
                return binding.at(port);
            } catch (IOException e) {
                last = e;
            }
        }
        boolean any = config.maxPort() == 0;
        throw new KvFerryException(
                any ? ErrorCode.BAD_CONFIG : ErrorCode.IO,
                "kv_ip (or bind_host) %s: no port%s can be bound (%s); give one of this host's addresses%s"
                        .formatted(
                                config.bindHost(),
                                any ? "" : " of " + config.minPort() + " to " + config.maxPort(),
                                last.getMessage(),
                                any ? "" : ", and min_port to max_port with free ports"),
                last);
    }

    public HostPort handshakeAddress() {
        return new HostPort(host, handshake.socket().getLocalPort());
    }

    public int dataPort() {
        return data.socket().getLocalPort();
    }
}
