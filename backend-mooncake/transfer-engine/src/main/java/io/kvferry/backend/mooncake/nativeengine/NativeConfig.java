// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.nativeengine;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;

/// Settings of the native engine.
///
/// @param library path of `libtransfer_engine.so`
/// @param metadata as in [EngineConfig#metadata], and whatever else the library was built for
/// @param name segment name with a metadata server; with `P2PHANDSHAKE` the advertised host
/// @param host advertised to peers
/// @param protocol the one transport to install: `tcp`, `rdma`
/// @param devices comma-separated RDMA devices, such as `mlx5_0,mlx5_1`; empty leaves the choice to
///   the library
/// @param queue transfers in flight at most
/// @param closeTimeout how long closing waits for transfers that the library still works on
public record NativeConfig(
        Path library,
        String metadata,
        String name,
        String host,
        String protocol,
        String devices,
        int queue,
        Duration closeTimeout) {
    /// The environment variable that names the library when no setting does.
    public static final String LIBRARY_VARIABLE = "KVFERRY_MOONCAKE_TE_LIB";

    public NativeConfig {
        if (!protocol.matches("[a-z]+") || !devices.matches("[A-Za-z0-9_.,-]*")) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "protocol '" + protocol + "' or device '" + devices + "' is malformed");
        }
        // The library ends the whole process on a metadata scheme that it does not know.
        if (!metadata.matches("P2PHANDSHAKE|(https?|etcd|redis)://[^\\s]+")) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "metadata '" + metadata + "' is not understood");
        }
    }

    /// With defaults, over TCP and without a metadata server.
    public static NativeConfig of(Path library, String host) {
        return new NativeConfig(
                library, EngineConfig.P2P, host, host, "tcp", "", 1024, Duration.ofSeconds(30));
    }

    /// The library named by the environment.
    public static Optional<Path> libraryFromEnvironment() {
        return Optional.ofNullable(System.getenv(LIBRARY_VARIABLE))
                .filter(text -> !text.isBlank())
                .map(Path::of);
    }
}
