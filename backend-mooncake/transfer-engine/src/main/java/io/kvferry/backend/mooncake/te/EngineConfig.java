// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;

import org.jspecify.annotations.Nullable;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/// Settings of the pure-Java engine. [#from] knows every key, its default and its range; the
/// constructor takes checked values.
///
/// @param host advertised to peers, part of the segment name with `P2PHANDSHAKE`
/// @param bindHost address that the sockets listen on; loopback unless said otherwise
/// @param minPort with maxPort: where ports are drawn from; 0 leaves the choice to the system
/// @param metadata `P2PHANDSHAKE`, `http://host:port/metadata` or `etcd://host:port`
/// @param name segment name with a metadata server; must be unique per start
/// @param clusterId key prefix with a metadata server, Mooncake's MC_METADATA_CLUSTER_ID; empty for
///   none
/// @param lanesPerPeer data connections to one peer at most
/// @param lanesPerTransfer data connections that share one large transfer at most; 0 for as many as
///   there are processors that no other connection of this process keeps busy
/// @param socketBufferBytes send and receive buffer of a data connection; 0 bounds them towards
///   peers on this host and leaves them to the system elsewhere, see
///   [io.kvferry.toolkit.net.DataSockets]
/// @param spinMicros how long a thread looks again and again for a short reply, the next request or
///   the rest of a range from this host before it sleeps, as long as the connections in use have
///   two processors each, and for the helpers of its own transfer; 0 for never. The default is more
///   than the waking of a thread takes, which was about 50 us on a virtual machine
///   (`docs/measurements.md`)
/// @param maxConnections data connections accepted at most
/// @param queuePerPeer submitted transfers waiting for one peer at most
/// @param connectTimeout of one connection attempt
/// @param handshakeTimeout of one handshake exchange, both roles
/// @param stallTimeout longest wait without any progress on a data connection in use; a peer that
///   is served has to send 64 KiB of its request in it, or take 512 KiB of what it asked for, or
///   the rest
/// @param drainTimeout wait of an unregistration before it cuts off peers that use the memory
/// @param handshakeMaxBytes bound of one handshake frame
/// @param maxNotifications received from one host and not yet taken; beyond it senders are refused
/// @param maxNotificationBytes heap that these may occupy; never more than a sixteenth of it
/// @param checksum whether CRC32C goes with the bytes between kvferry peers over TCP
/// @param extension whether kvferry peers are told that this is one
/// @param protocolVersion of the TCP data protocol, advertised and used: 1 or 2
/// @param sharedMemory whether peers on the same host may map memory that the engine allocated
/// @param sharedMemoryDir a memory-backed folder
/// @param crossMemory whether bytes go straight between the own memory of processes on this host
///   (Linux's cross memory attach), both ends willing and the kernel permitting; needs sharedMemory
/// @param crossMemoryPtracer whether every process of this user may read and write this one's
///   memory where Yama's ptrace_scope is 1, which cross memory attach needs there
/// @param secret that peers must know to be let in at either port; without it anybody is, as with
///   Mooncake
public record EngineConfig(
        String host,
        String bindHost,
        int minPort,
        int maxPort,
        String metadata,
        String name,
        String clusterId,
        int lanesPerPeer,
        int lanesPerTransfer,
        int socketBufferBytes,
        int spinMicros,
        int maxConnections,
        int queuePerPeer,
        Duration connectTimeout,
        Duration handshakeTimeout,
        Duration stallTimeout,
        Duration drainTimeout,
        int handshakeMaxBytes,
        int maxNotifications,
        int maxNotificationBytes,
        Checksum checksum,
        boolean extension,
        int protocolVersion,
        boolean sharedMemory,
        Path sharedMemoryDir,
        boolean crossMemory,
        boolean crossMemoryPtracer,
        Optional<FleetSecret> secret) {
    /// When bytes are summed on their way over a socket.
    public enum Checksum {
        /// Towards other hosts. Within one the kernel copies from memory to memory, and the sum
        /// would cost more than that.
        AUTO,
        ALWAYS,
        NEVER;

        /// @param withinHost whether both ends of the connection are on this host
        public boolean covers(boolean withinHost) {
            return this == ALWAYS || this == AUTO && !withinHost;
        }
    }

    /// Mooncake's value for "no metadata server".
    public static final String P2P = "P2PHANDSHAKE";

    /// Kept, for asking costs a system call or more.
    private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

    public EngineConfig {
        if (!metadata.equals(P2P) && name.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "metadata "
                            + metadata
                            + " needs a setting 'name' that is unique per start of the engine");
        }
        if (minPort > maxPort) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "min-port " + minPort + " > max-port " + maxPort);
        }
    }

    /// The defaults: loopback, `P2PHANDSHAKE`, ports chosen by the system.
    public static EngineConfig defaults() {
        return from(Map.of());
    }

    /// Reads settings; an absent key has its default.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for an unknown key or a value out of range
    public static EngineConfig from(Map<String, String> settings) {
        var left = new TreeMap<>(settings);
        String host = text(left, "host", "127.0.0.1");
        var config =
                new EngineConfig(
                        host,
                        text(left, "bind-host", host),
                        number(left, "min-port", 0, 0, 65_535),
                        number(left, "max-port", 0, 0, 65_535),
                        text(left, "metadata", P2P),
                        text(left, "name", ""),
                        text(left, "cluster-id", ""),
                        number(left, "lanes-per-peer", 4, 1, 64),
                        number(left, "lanes-per-transfer", 0, 0, 64),
                        number(left, "socket-buffer-bytes", 0, 0, 64 << 20),
                        number(left, "spin-us", 100, 0, 1000),
                        number(left, "max-connections", 1024, 1, 65_536),
                        number(left, "queue-per-peer", 1024, 1, 1 << 20),
                        millis(left, "connect-timeout-ms", 5_000),
                        millis(left, "handshake-timeout-ms", 10_000),
                        millis(left, "stall-timeout-ms", 30_000),
                        millis(left, "drain-timeout-ms", 2_000),
                        number(left, "handshake-max-bytes", 1 << 20, 1 << 10, 128 << 20),
                        number(left, "max-notifications", 65_536, 1, 1 << 24),
                        number(left, "max-notification-bytes", 16 << 20, 1 << 10, 1 << 30),
                        checksum(text(left, "checksum", "auto")),
                        flag(left, "extension", true),
                        number(left, "protocol-version", 2, 1, 2),
                        flag(left, "shared-memory", true),
                        Path.of(text(left, "shared-memory-dir", "/dev/shm")),
                        flag(left, "cross-memory", true),
                        flag(left, "cross-memory-ptracer", false),
                        secret(text(left, "secret-file", "")));
        if (!left.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "unknown transfer engine settings " + left.keySet());
        }
        return config;
    }

    /// Data connections, or copying threads, that share one large transfer at most; each keeps a
    /// thread busy.
    public int mostSlices() {
        return Math.min(lanesPerPeer, lanesPerTransfer > 0 ? lanesPerTransfer : PROCESSORS);
    }

    /// Data connections that share one large transfer at most.
    ///
    /// @param free how many connections the transfer may keep busy beside those that are
    public int mostLanes(int free) {
        return lanesPerTransfer > 0 ? mostSlices() : Math.min(mostSlices(), free);
    }

    public boolean p2p() {
        return metadata.equals(P2P);
    }

    private static Optional<FleetSecret> secret(String file) {
        return file.isEmpty()
                ? FleetSecret.configured()
                : Optional.of(FleetSecret.read(Path.of(file)));
    }

    /// The authentication that begins a connection to a port; empty without a secret.
    public Optional<PeerAuth> auth(PeerAuth.Kind kind) {
        return secret.map(known -> new PeerAuth(known, kind));
    }

    private static String text(Map<String, String> left, String key, String byDefault) {
        String value = left.remove(key);
        return value == null ? byDefault : value;
    }

    private static int number(
            Map<String, String> left, String key, int byDefault, int least, int most) {
        String value = left.remove(key);
        if (value == null) {
            return byDefault;
        }
        try {
            int parsed = Integer.parseInt(value.strip());
            if (parsed >= least && parsed <= most) {
                return parsed;
            }
        } catch (NumberFormatException e) {
            throw outside(key, value, least, most, e);
        }
        throw outside(key, value, least, most, null);
    }

    private static KvFerryException outside(
            String key, String value, int least, int most, @Nullable Throwable cause) {
        String text = "%s = '%s' is no number from %d to %d".formatted(key, value, least, most);
        return cause == null
                ? new KvFerryException(ErrorCode.BAD_CONFIG, text)
                : new KvFerryException(ErrorCode.BAD_CONFIG, text, cause);
    }

    private static Duration millis(Map<String, String> left, String key, int byDefault) {
        return Duration.ofMillis(number(left, key, byDefault, 1, 86_400_000));
    }

    private static Checksum checksum(String value) {
        return switch (value) {
            case "auto" -> Checksum.AUTO;
            case "true" -> Checksum.ALWAYS;
            case "false" -> Checksum.NEVER;
            case String other ->
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            "checksum = '" + other + "' is none of auto, true, false");
        };
    }

    private static boolean flag(Map<String, String> left, String key, boolean byDefault) {
        String value = left.remove(key);
        return switch (value == null ? String.valueOf(byDefault) : value) {
            case "true" -> true;
            case "false" -> false;
            case String other ->
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            key + " = '" + other + "' is neither true nor false");
        };
    }
}
