// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;
import io.kvferry.toolkit.secret.FleetSecret;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.DatagramSocket;
import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/// How a user reaches the owner of a store.
///
/// @param address `host:port` of the owner
/// @param localHost address of this host that the owner reaches; empty for the one from which the
///   owner is reached
/// @param secretFile file with the fleet's secret; empty for the one of the environment, if any
/// @param insecure whether an owner on another host may be used without a secret
/// @param askLimit for one question
/// @param moveLimit for the bytes of one batch
/// @param engineSettings of the transfer engine of this user, beside its address and the secret, as
///   [EngineConfig#from] knows them
public record RemoteStoreConfig(
        String address,
        Optional<String> localHost,
        Optional<Path> secretFile,
        boolean insecure,
        Duration askLimit,
        Duration moveLimit,
        Map<String, String> engineSettings) {
    /// Before the address of a directory of owners, which tells it from an owner.
    public static final String MASTER_AT = "master://";

    private static final Duration ASK = Duration.ofSeconds(5);
    private static final Duration MOVE = Duration.ofSeconds(60);

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for an address that is none
    public RemoteStoreConfig {
        hostAndPort(address);
        engineSettings = Map.copyOf(engineSettings);
    }

    /// With a transfer engine of default settings.
    public RemoteStoreConfig(
            String address,
            Optional<String> localHost,
            Optional<Path> secretFile,
            boolean insecure,
            Duration askLimit,
            Duration moveLimit) {
        this(address, localHost, secretFile, insecure, askLimit, moveLimit, Map.of());
    }

    /// The same with settings of the transfer engine.
    public RemoteStoreConfig withEngine(Map<String, String> settings) {
        return new RemoteStoreConfig(
                address, localHost, secretFile, insecure, askLimit, moveLimit, settings);
    }

    /// The defaults.
    public static RemoteStoreConfig of(String address) {
        return new RemoteStoreConfig(address, Optional.empty(), Optional.empty(), false, ASK, MOVE);
    }

    /// What stands behind `master://`, which may be left out where nothing but a master is meant.
    public static String withoutScheme(String master) {
        String text = master.strip();
        return text.startsWith(MASTER_AT) ? text.substring(MASTER_AT.length()) : text;
    }

    /// The same for another owner.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for an address that is none
    public RemoteStoreConfig at(String another) {
        return new RemoteStoreConfig(
                another, localHost, secretFile, insecure, askLimit, moveLimit, engineSettings);
    }

    /// The limit for a question that takes no longer than `most`.
    public Duration askLimit(Duration most) {
        return askLimit.compareTo(most) < 0 ? askLimit : most;
    }

    private static URI hostAndPort(String address) {
        try {
            var uri = URI.create("tcp://" + address);
            boolean nothingElse =
                    address.equals(uri.getRawAuthority()) && uri.getRawUserInfo() == null;
            if (uri.getHost() != null
                    && uri.getPort() > 0
                    && uri.getPort() <= 65_535
                    && nothingElse) {
                return uri;
            }
        } catch (IllegalArgumentException e) {
            throw bad(address, e);
        }
        throw bad(address, null);
    }

    private static KvFerryException bad(String address, @Nullable Throwable cause) {
        String text = "'" + address + "' is no address of a store's owner: give host:port";
        return cause == null
                ? new KvFerryException(ErrorCode.BAD_CONFIG, text)
                : new KvFerryException(ErrorCode.BAD_CONFIG, text, cause);
    }

    /// What the file or the environment says.
    public Optional<FleetSecret> secret() {
        return StoreSecret.of(secretFile);
    }

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when bytes would go to another host without
    ///   a secret
    public void checkSecret() {
        String host = hostAndPort(address).getHost();
        if (secret().isEmpty() && !insecure && !isLoopback(host)) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "the store at "
                            + address
                            + " is on another host: set "
                            + FleetSecret.SETTING
                            + ", or insecure=true where everybody on the network is trusted");
        }
    }

    /// That others can use an owner that reports to the master at this address.
    ///
    /// @param host on which the owner listens, and by which it is listed
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when that names another host elsewhere
    public void checkListed(String host) {
        boolean here = isLoopback(host) && isLoopback(hostAndPort(address).getHost());
        if (!here && (isLoopback(host) || isWildcard(host))) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "the master at "
                            + address
                            + " would list this owner as "
                            + host
                            + ", by which others do not reach it: set host to the address of this"
                            + " host that they reach");
        }
    }

    private static boolean isWildcard(String host) {
        var address = HostNames.SYSTEM.socketAddress(host, 0).getAddress();
        return address != null && address.isAnyLocalAddress();
    }

    /// Whether the name resolves; false for an unknown name.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when no name server answers
    static boolean isLoopback(String host) {
        var address = HostNames.SYSTEM.socketAddress(host, 0).getAddress();
        return address != null && address.isLoopbackAddress();
    }

    /// For the user's end of transfers.
    EngineConfig engine() {
        var settings = new HashMap<>(engineSettings);
        settings.put("host", ownHost());
        secretFile.ifPresent(file -> settings.put("secret-file", file.toString()));
        return EngineConfig.from(settings);
    }

    /// The address of this host by which the owner reaches it.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when there is no way to the owner
    public String ownHost() {
        return localHost.orElseGet(() -> {
            var owner = hostAndPort(address);
            var known = HostNames.SYSTEM.socketAddress(owner.getHost(), owner.getPort());
            try (var probe = new DatagramSocket()) { // sends nothing
                probe.connect(known);
                return probe.getLocalAddress().getHostAddress();
            } catch (IOException | UncheckedIOException e) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG, "no way to the store at " + address + ": " + e, e);
            }
        });
    }
}
