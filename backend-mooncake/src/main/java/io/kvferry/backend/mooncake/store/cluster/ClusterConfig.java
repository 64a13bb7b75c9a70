// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.DatagramSocket;
import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;

/// How a process uses a Mooncake cluster. Stores of equal configurations share one client of it.
///
/// @param master `host:port` of the master's RPC port, or `etcd://...` and the like, as Mooncake
///   takes them
/// @param metadata `P2PHANDSHAKE` or the URL of a metadata server
/// @param localHost address of this host that other clients reach; empty for the one from which the
///   master is reached
/// @param protocol `tcp`, `rdma` or what else the library knows
/// @param device names of devices for that, empty for any
/// @param segmentBytes memory that this process adds to the cluster, 0 for none
/// @param localBufferBytes of the library's own buffer
/// @param tenant of Mooncake, `default` for none
/// @param library the file; empty for [#LIBRARY_VARIABLE], else the linker's search
/// @param askLimit for one question
/// @param moveLimit for the bytes of one batch
public record ClusterConfig(
        String master,
        String metadata,
        Optional<String> localHost,
        String protocol,
        String device,
        long segmentBytes,
        long localBufferBytes,
        String tenant,
        Optional<Path> library,
        Duration askLimit,
        Duration moveLimit) {
    /// Names the library.
    public static final String LIBRARY_VARIABLE = "KVFERRY_MOONCAKE_STORE_LIB";

    /// Metadata without a server.
    public static final String NO_METADATA_SERVER = "P2PHANDSHAKE";

    /// What the library's own buffer has, of which nothing is used here.
    public static final long LOCAL_BUFFER = 16L << 20;

    private static final Duration ASK = Duration.ofSeconds(5);
    private static final Duration MOVE = Duration.ofSeconds(60);

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for values that cannot be
    public ClusterConfig {
        if (master.isBlank()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "no address of a Mooncake master: give host:port");
        }
        if (segmentBytes < 0 || localBufferBytes <= 0) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "a Mooncake client with a segment of "
                            + segmentBytes
                            + " and a buffer of "
                            + localBufferBytes
                            + " bytes");
        }
    }

    /// A user that adds no memory, over TCP and without a metadata server.
    public static ClusterConfig requester(String master) {
        return new ClusterConfig(
                master,
                NO_METADATA_SERVER,
                Optional.empty(),
                "tcp",
                "",
                0,
                LOCAL_BUFFER,
                StoreIdentity.DEFAULT_TENANT,
                Optional.empty(),
                ASK,
                MOVE);
    }

    public ClusterConfig withSegment(long bytes) {
        return new ClusterConfig(
                master,
                metadata,
                localHost,
                protocol,
                device,
                bytes,
                localBufferBytes,
                tenant,
                library,
                askLimit,
                moveLimit);
    }

    public ClusterConfig withLibrary(Path file) {
        return new ClusterConfig(
                master,
                metadata,
                localHost,
                protocol,
                device,
                segmentBytes,
                localBufferBytes,
                tenant,
                Optional.of(file),
                askLimit,
                moveLimit);
    }

    public ClusterConfig withLimits(Duration ask, Duration move) {
        return new ClusterConfig(
                master,
                metadata,
                localHost,
                protocol,
                device,
                segmentBytes,
                localBufferBytes,
                tenant,
                library,
                ask,
                move);
    }

    /// The name of this host for the cluster.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when the master's host is not known
    String host() {
        return localHost.orElseGet(() -> {
            URI address;
            try {
                address = URI.create(master.contains("://") ? master : "tcp://" + master);
            } catch (IllegalArgumentException e) {
                throw unreachable(e);
            }
            if (address.getHost() == null || address.getPort() <= 0) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "the Mooncake master '"
                                + master
                                + "' is not host:port; name the address of this host"
                                + " (local_hostname)");
            }
            var known = HostNames.SYSTEM.socketAddress(address.getHost(), address.getPort());
            try (var probe = new DatagramSocket()) { // sends nothing
                probe.connect(known);
                return probe.getLocalAddress().getHostAddress();
            } catch (IOException | UncheckedIOException e) {
                throw unreachable(e);
            }
        });
    }

    private KvFerryException unreachable(Exception cause) {
        return new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "no way to the Mooncake master at " + master + ": " + cause,
                cause);
    }
}
